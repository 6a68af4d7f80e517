package rdmatest

import (
	"cmp"
	"errors"
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

// The protocol between a Proc and its Agent: calls one way, one answer to each
// the other way, both gob-coded structs that carry only the fields in use.
// Objects of the agent travel as handles, counted from 1. Calls of several
// goroutines are answered in any order.

type operation uint8

const (
	opHello operation = iota + 1
	opPort
	opGID
	opAddEndpoint
	opAllocPD
	opCreateCQ
	opCreateQP
	opMemory
	opAgain
	opAgainAt
	opRereg
	opPages
	opAdvise
	opAllocMW
	opShareVA
	opProtect
	opCreateMkey
	opRKey
	opBindMW
	opClose
	opState
	opModify
	opQuery
	opPostSend
	opPostRecv
	opPoll
	opCounters
	opSupports
	opLoad
	opStore
	opLoad64
	opChurn
	opFlood
	opTagFlood
	opBounce
	opCloseContext
	opCancel
	opAsyncEvent
	opCreateChannel
	opChannelGet
	opCreateCQEx
	opPollEx
	opReqNotify
	opResize
	opCreateSRQ
	opSRQPost
	opSRQModify
	opSRQQuery
	opSRQOps
	opCreateAH
	opOpenXRCD
	opOpenQP
)

// A handle names an object of the agent; 0 is none, and what is not known at
// the agent is refused as a nil object would be.
type handle uint32

type call struct {
	Seq     uint64
	Op      operation
	On      handle // the object called
	Send    handle // create QP: CQs
	Recv    handle
	SRQ     handle
	XRCD    handle
	N, Off  int
	Kind    MemoryKind
	Access  rdma.Access
	IOVA    uint64
	Addr    uint64
	Length  uint64
	Rereg   rdma.ReregFlags
	Page    pageOp
	Advice  rdma.Advice
	Flush   rdma.AdviseFlags
	SGL     []rdma.SGE
	Port    uint8
	GID     rdma.GID
	Data    []byte
	Attr    rdma.QPAttr
	Mask    rdma.QPAttrMask
	Type    rdma.QPType
	Cap     rdma.QPCap
	SigAll  bool
	DCKey   uint64
	Stride  rdma.StridingRQ
	Sends   []sendCall
	MWType  rdma.MWType
	Recvs   []rdma.RecvWR
	Ops     []rdma.OpsWR
	Load    load
	CQInit  rdma.CQInitAttr  // without what handles stand for
	SRQInit rdma.SRQInitAttr // the same
	SRQAttr rdma.SRQAttr
	SRQMask rdma.SRQAttrMask
	AV      rdma.AV
}

// A load is what one side does by itself, many times.
type load struct {
	Churn  churn
	Flood  flood
	Tags   tagFlood
	Bounce bounce
}

// A sendCall is a request with handles in place of objects.
type sendCall struct {
	WR   rdma.SendWR
	AH   handle
	MW   handle
	Mkey handle
	Bind *bindCall
}

// A bindCall is what a window is to show.
type bindCall struct {
	MR           handle
	Addr, Length uint64
	Access       rdma.Access
}

func callOfSend(wr rdma.SendWR) sendCall {
	c := sendCall{WR: wr, AH: handleOf(wr.AH), MW: handleOf(wr.MW), Mkey: handleOf(wr.Mkey)}
	if b := wr.Bind; b != nil {
		c.Bind = &bindCall{MR: handleOf(b.MR), Addr: b.Addr, Length: b.Length, Access: b.Access}
	}
	c.WR.AH, c.WR.MW, c.WR.Bind, c.WR.Mkey = nil, nil, nil, nil
	return c
}

// request is the request at the agent, whose objects the handles name.
func (c *sendCall) request(a *agent) (wr rdma.SendWR, err error) {
	wr = c.WR
	err = errors.Join(optional(a, c.AH, &wr.AH), optional(a, c.MW, &wr.MW), optional(a, c.Mkey, &wr.Mkey))
	if err == nil && c.Bind != nil {
		var m Region
		err = optional(a, c.Bind.MR, &m)
		wr.Bind = &rdma.MWBind{MR: m.MR, Addr: c.Bind.Addr, Length: c.Bind.Length, Access: c.Bind.Access}
	}
	return wr, err
}

type answer struct {
	agent *agent // that makes it
	Seq   uint64
	Fault string // an error's text, "" for none
	Errno syscall.Errno

	Object    handle
	N         int
	Value     uint64
	Key       [2]uint32 // lkey, rkey; or the number of a queue pair
	Addr      uint64
	Base      uint64
	Data      []byte
	WCs       []rdma.WC
	Attr      rdma.QPAttr
	Cap       rdma.QPCap
	SigAll    bool
	State     rdma.QPState
	GID       rdma.GID
	Port      rdma.PortAttr
	Counters  rdma.Counters
	Device    string
	Limits    rdma.DeviceAttr
	Reachable bool // the context is an Endpointer, whose endpoint is Data

	WCExs   []rdma.WCEx
	Nums    []uint32 // of queue pairs
	SRQAttr rdma.SRQAttr
	Handles []uint32
	Event   event
}

// An event is an rdma.AsyncEvent on its way.
type event struct {
	Type rdma.EventType
	On   handle // the object, 0 for a port
	Port uint8
}

// fail puts an error into the answer.
func (a *answer) fail(err error) {
	if err == nil {
		return
	}
	a.Fault = cmp.Or(err.Error(), "an error without a text")
	errors.As(err, &a.Errno)
}

// err takes it out again: what errors.Is finds of an errno is kept.
func (a *answer) err() error {
	if a.Fault == "" {
		return nil
	}
	return &remoteError{a.Fault, a.Errno}
}

type remoteError struct {
	text  string
	errno syscall.Errno
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}
