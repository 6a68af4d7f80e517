package rdma

// An SGE names local memory of one work request (struct ibv_sge).
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendFlags modify a send work request (enum ibv_send_flags).
type SendFlags uint8

// The send flags, with libibverbs' values.
const (
	SendFence     SendFlags = 1 << 0 // start after all earlier reads and atomics are complete
	SendSignaled  SendFlags = 1 << 1 // complete with a WC (errors always do)
	SendSolicited SendFlags = 1 << 2
	SendInline    SendFlags = 1 << 3 // copy the payload at post; Inline or the SGEs' memory is free at once
)

// A SendWR is a work request for a send queue (struct ibv_send_wr). The fields
// of operations that it does not name are ignored.
type SendWR struct {
	WRID    uint64
	Opcode  WROpcode
	Flags   SendFlags
	ImmData uint32 // ...WithImm
	SGL     []SGE

	RemoteAddr uint64 // write, read, atomic
	RKey       uint32 // write, read, atomic
	CompareAdd uint64 // atomic: what to compare with, or to add
	Swap       uint64 // compare and swap: the new value

	InvalidateRKey uint32 // send with invalidate, local invalidate
	SRQNum         uint32 // XRC: the receiver's SRQ
	AH             AH     // UD and DC: where to
	RemoteQPN      uint32 // UD: the queue pair there; DC: the target's number
	RemoteQKey     uint32 // UD
	DCAccessKey    uint64 // DC

	MW     MW          // bind: the window; RKey is its new key
	Bind   *MWBind     // bind: what it shows
	Mkey   Mkey        // WRRegMkey
	Layout *MkeyLayout // WRRegMkey; read until the post returns

	// Inline, when not nil, is the payload of a request posted with
	// SendInline, in place of the memory that SGL names: no local region is
	// needed then. It goes beyond libibverbs, where an SGE's address serves.
	Inline []byte
}

// A RecvWR is a work request for a receive queue (struct ibv_recv_wr).
type RecvWR struct {
	WRID uint64
	SGL  []SGE
}
