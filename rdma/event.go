package rdma

import (
	"context"
	"strconv"
)

// A CompChannel reports new completions, so that a program can wait without polling (struct
// ibv_comp_channel). The order is: CQ.ReqNotify, then Poll until the queue is empty, then Get.
type CompChannel interface {
	// Get waits for the next event and returns its CQ (ibv_get_cq_event). Each ReqNotify whose condition
	// was met gives one event, which is already acknowledged. When ctx ends first the error is its cause.
	Get(ctx context.Context) (CQ, error)
	// Close destroys the channel. It fails with ErrBusy while CQs use it. A waiting Get returns an error.
	Close() error
}

// An EventType is the type of an asynchronous event (enum ibv_event_type).
type EventType uint8

// The asynchronous events, with libibverbs' values.
const (
	EventCQErr EventType = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

var eventNames = [...]string{
	"CQ error", "local work queue catastrophic error", "invalid request local work queue error",
	"local access violation work queue error", "communication established", "send queue drained",
	"path migrated", "path migration request error", "local catastrophic error", "port active", "port error",
	"LID change", "P_Key table change", "SM change", "SRQ catastrophic error", "SRQ limit reached",
	"last WQE reached", "client reregistration", "GID table change", "WQ fatal",
}

// String is the text of ibv_event_type_str.
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return "event " + strconv.Itoa(int(t))
}

// An AsyncEvent is an event of an object that no completion reports (struct ibv_async_event).
// Type says which of QP, CQ, SRQ and Port is set. The event is already acknowledged.
type AsyncEvent struct {
	Type EventType
	QP   QP
	CQ   CQ
	SRQ  SRQ
	Port uint8
}
