package rdma

import (
	"context"
	"strconv"
)

// A CompChannel tells when completions have come, so that a program can wait
// without polling (struct ibv_comp_channel). The order is: CQ.ReqNotify, Poll
// once more until nothing comes, then Get.
type CompChannel interface {
	// Get waits for the next event and gives the CQ that it is for
	// (ibv_get_cq_event). One event comes for each ReqNotify whose condition was
	// met; it counts as acknowledged. When ctx ends first the error is its cause.
	Get(ctx context.Context) (CQ, error)
	// Close destroys the channel; with CQs attached it fails with ErrBusy. A
	// Get that waits ends with an error.
	Close() error
}

// An EventType names an asynchronous event (enum ibv_event_type).
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

// String is what ibv_event_type_str says.
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return "event " + strconv.Itoa(int(t))
}

// An AsyncEvent is something that happened to an object beside any request
// (struct ibv_async_event). Of QP, CQ, SRQ and Port the one is set that the type
// speaks of. It counts as acknowledged.
type AsyncEvent struct {
	Type EventType
	QP   QP
	CQ   CQ
	SRQ  SRQ
	Port uint8
}
