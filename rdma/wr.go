package rdma

// An SGE is a scatter/gather entry: a piece of local memory of a work request (struct ibv_sge).
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendFlags modify a send request (enum ibv_send_flags).
type SendFlags uint8

// The send flags, with libibverbs' values.
const (
	SendFence     SendFlags = 1 << 0 // start after all earlier reads and atomics are complete
	SendSignaled  SendFlags = 1 << 1 // create a completion on success; failed requests always create one
	SendSolicited SendFlags = 1 << 2
	SendInline    SendFlags = 1 << 3 // copy the payload at the post; the memory of Inline or of the SGEs may be reused at once
)

// A SendWR is a work request for a send queue (struct ibv_send_wr). An
// operation ignores fields that it does not use.
type SendWR struct {
	WRID    uint64
	Opcode  WROpcode
	Flags   SendFlags
	ImmData uint32 // ...WithImm
	SGL     []SGE

	RemoteAddr uint64 // write, read, atomic
	RKey       uint32 // write, read, atomic
	CompareAdd uint64 // atomic: the value to compare with, or to add
	Swap       uint64 // compare and swap: the new value

	InvalidateRKey uint32 // send with invalidate, local invalidate
	SRQNum         uint32 // XRC: the receiver's SRQ
	AH             AH     // UD and DC: the destination port
	RemoteQPN      uint32 // UD: the destination queue pair; DC: the target's number
	RemoteQKey     uint32 // UD
	DCAccessKey    uint64 // DC

	MW     MW          // bind: the window; RKey is its new key
	Bind   *MWBind     // bind: the memory of the window
	Mkey   Mkey        // WRRegMkey
	Layout *MkeyLayout // WRRegMkey; read until the post returns

	// Inline, if not nil, is the payload of a request with SendInline, in place of the memory in
	// SGL. It needs no local region. libibverbs has no such field: there an SGE holds the address.
	Inline []byte
}

// A RecvWR is a work request for a receive queue (struct ibv_recv_wr).
type RecvWR struct {
	WRID uint64
	SGL  []SGE
}
