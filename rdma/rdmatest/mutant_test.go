package rdmatest_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/rdmatest"
)

// A mutant is a device with one fault, and the case that must find it: the
// suite itself is tested by breaking what it tests.
type mutant struct {
	name   string
	caught string // group/rule
	hooks
}

// hooks come between the suite and a device that keeps the rules. A nil one
// changes nothing.
type hooks struct {
	post     func(wrs []rdma.SendWR) []rdma.SendWR    // what the device gets
	refused  func(q rdma.QP, rest []rdma.SendWR)      // after a refused post
	recv     func(wrs []rdma.RecvWR) []rdma.RecvWR    // what the device gets
	poll     func(wcs []rdma.WC) []rdma.WC            // what the program gets, in place
	modify   func(a *rdma.QPAttr, m *rdma.QPAttrMask) // what the device gets
	query    func(a *rdma.QPAttr)
	register func(m rdma.MR) // after AllocMR
	closeMR  func(m rdma.MR) error
	closePD  func(d rdma.PD) error
	closeCQ  func(q rdma.CQ) error
	counters func(c *rdma.Counters)
	state    func(s rdma.QPState) rdma.QPState

	create    func(i *rdma.QPInitAttr)   // what the device gets
	queryInit func(i *rdma.QPInitAttr)   // what the program gets
	modifySRQ func(a *rdma.SRQAttr)      // what the device gets
	domain    func(a *rdma.XRCDInitAttr) // what the device gets
	limits    func(a *rdma.DeviceAttr)
	pollEx    func(wc *rdma.WCEx) // each that the program gets
	notify    func(q rdma.CQ, solicitedOnly bool) error
	resize    func(q rdma.CQ, n int) error
	ops       func(wrs []rdma.OpsWR) // before the device gets them
	untold    []rdma.EventType       // events that the program does not get
	progress  func(p rdma.Progresser) bool
	mapAccess func(a rdma.Access) rdma.Access // what the device is asked for

	pin     func(b []byte, a *rdma.Access) // before RegMR
	iova    func(iova uint64) uint64       // what the device gets
	advise  func() error
	rereg   func(m rdma.MR, pd *rdma.PD, a *rdma.Access)
	bind    func(b *rdma.MWBind) // what the device gets, of windows of type 1
	closeMW func(w rdma.MW) error
	protect func(length *uint64, a *rdma.Access) // what the device gets
}

func status(from, to rdma.WCStatus) func([]rdma.WC) []rdma.WC {
	return each(func(c *rdma.WC) {
		if c.Status == from {
			c.Status = to
		}
	})
}

func each(change func(*rdma.WC)) func([]rdma.WC) []rdma.WC {
	return func(wcs []rdma.WC) []rdma.WC {
		for i := range wcs {
			change(&wcs[i])
		}
		return wcs
	}
}

// drop takes completions away.
func drop(which func(rdma.WC) bool) func([]rdma.WC) []rdma.WC {
	return func(wcs []rdma.WC) []rdma.WC {
		kept := wcs[:0]
		for _, c := range wcs {
			if !which(c) {
				kept = append(kept, c)
			}
		}
		return kept
	}
}

func requests(change func(*rdma.SendWR)) func([]rdma.SendWR) []rdma.SendWR {
	return func(wrs []rdma.SendWR) []rdma.SendWR {
		out := append([]rdma.SendWR(nil), wrs...)
		for i := range out {
			change(&out[i])
		}
		return out
	}
}

const exactTag = ^uint64(0)

const stepMask = rdma.QPPKeyIndexMask | rdma.QPPortMask | rdma.QPAccessFlagsMask

func mutants() []mutant {
	return []mutant{
		{"every request is signaled", "signal/only_signaled_complete", hooks{post: requests(func(w *rdma.SendWR) { w.Flags |= rdma.SendSignaled })}},
		{"every fourth success gets lost", "signal/long_runs_without_signal", hooks{poll: drop(func(c rdma.WC) bool { return c.Status == rdma.WCSuccess && c.WRID%4 == 3 })}},
		{"a remote access error is told as an invalid request", "access/remote_violations_are_REM_ACCESS_ERR", hooks{poll: status(rdma.WCRemAccessErr, rdma.WCRemInvReqErr)}},
		{"an invalid request is told as a remote access error", "access/qp_flags_come_before_the_key", hooks{poll: status(rdma.WCRemInvReqErr, rdma.WCRemAccessErr)}},
		{"a local protection error is told as an operation error", "access/local_violations_are_LOC_PROT_ERR", hooks{poll: status(rdma.WCLocProtErr, rdma.WCLocQPOpErr)}},
		{"a remote operation error is told as an access error", "recv/bad_sge_is_LOC_PROT_ERR", hooks{poll: status(rdma.WCRemOpErr, rdma.WCRemAccessErr)}},
		{"a length error is told as success", "recv/too_small_is_LOC_LEN_ERR", hooks{poll: status(rdma.WCLocLenErr, rdma.WCSuccess)}},
		{"flushed requests do not complete", "flush/follows_an_error_in_order", hooks{poll: drop(func(c rdma.WC) bool { return c.Status == rdma.WCWRFlushErr })}},
		{"flushes look like successes", "flush/on_modify_to_ERR", hooks{poll: status(rdma.WCWRFlushErr, rdma.WCSuccess)}},
		{"the low bits of a key do not count", "access/remote_violations_are_REM_ACCESS_ERR", keysByIndex()},
		{"a closed region stays open", "write/rkey_stale_after_dereg", hooks{closeMR: func(rdma.MR) error { return nil }}},
		{"a domain in use can be closed", "life/close_in_use_is_EBUSY", hooks{closePD: func(d rdma.PD) error { _ = d.Close(); return nil }}},
		{"a CQ in use can be closed", "life/close_in_use_is_EBUSY", hooks{closeCQ: func(q rdma.CQ) error { _ = q.Close(); return nil }}},
		{"the immediate is in the wrong byte order", "status/completion_fields", hooks{poll: each(func(c *rdma.WC) {
			c.ImmData = c.ImmData<<24 | c.ImmData>>24 | c.ImmData>>8&0xff00 | c.ImmData<<8&0xff0000
		})}},
		{"a receive counts one byte too many", "recv/one_message_one_receive", hooks{poll: each(func(c *rdma.WC) {
			if c.Opcode == rdma.WCRecv {
				c.ByteLen++
			}
		})}},
		{"the request's identity is cut to 32 bits", "status/completion_fields", hooks{poll: each(func(c *rdma.WC) { c.WRID = uint64(uint32(c.WRID)) })}},
		{"a list goes on after its bad request", "post/list_stops_at_first_bad", hooks{refused: func(q rdma.QP, rest []rdma.SendWR) { _, _ = q.PostSend(rest) }}},
		{"atomics are executed twice", "atomic/values", hooks{post: doubled(rdma.WRAtomicFetchAndAdd)}},
		{"atomics are executed twice at times", "atomic/many_initiators_exactly_once", hooks{post: now(100, doubled(rdma.WRAtomicFetchAndAdd))}},
		{"sends are executed twice", "recv/filled_in_posting_order", hooks{post: doubled(rdma.WRSend)}},
		{"the queue pair's rights do not count", "access/qp_flags_come_before_the_key", hooks{modify: func(a *rdma.QPAttr, _ *rdma.QPAttrMask) {
			a.AccessFlags |= rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
		}}},
		{"reads are answered without resources", "status/no_responder_resources_is_REM_INV_REQ", hooks{modify: func(a *rdma.QPAttr, _ *rdma.QPAttrMask) { a.MaxDestRdAtomic = max(a.MaxDestRdAtomic, 1) }}},
		{"RNR is retried once more", "rnr/retry_count_then_RNR_RETRY_EXC_ERR", hooks{modify: func(a *rdma.QPAttr, _ *rdma.QPAttrMask) { a.RNRRetry = min(a.RNRRetry+1, 7) }}},
		{"RNR is not retried for ever", "rnr/count_7_waits_for_ever", hooks{modify: func(a *rdma.QPAttr, _ *rdma.QPAttrMask) { a.RNRRetry = min(a.RNRRetry, 6) }}},
		{"the RNR timer is too short", "rnr/retry_count_then_RNR_RETRY_EXC_ERR", hooks{modify: func(a *rdma.QPAttr, _ *rdma.QPAttrMask) { a.MinRNRTimer = 1 }}},
		{"a timeout of 0 is one", "ack/timeout_0_never_gives_up", hooks{modify: func(a *rdma.QPAttr, _ *rdma.QPAttrMask) {
			a.Timeout, a.RetryCnt = 1, 0
		}}},
		{"the peer is not retried", "ack/nobody_is_RETRY_EXC_ERR", hooks{modify: func(a *rdma.QPAttr, _ *rdma.QPAttrMask) { a.RetryCnt = 0 }}},
		{"a missing attribute is made up", "state/missing_attribute_is_EINVAL", hooks{modify: func(a *rdma.QPAttr, m *rdma.QPAttrMask) {
			if *m&rdma.QPStateMask != 0 && a.State == rdma.StateInit {
				*m |= stepMask
			}
		}}},
		{"an extra attribute is ignored", "state/extra_attribute_is_EINVAL", hooks{modify: func(a *rdma.QPAttr, m *rdma.QPAttrMask) {
			if *m&rdma.QPStateMask != 0 && a.State == rdma.StateErr {
				*m = rdma.QPStateMask
			}
		}}},
		{"a bad retry count is cut", "state/bad_values_are_EINVAL", hooks{modify: func(a *rdma.QPAttr, _ *rdma.QPAttrMask) { a.RetryCnt &= 7 }}},
		{"the query forgets the timer", "state/query_gives_what_was_set", hooks{query: func(a *rdma.QPAttr) { a.MinRNRTimer = 0 }}},
		{"the error state does not show", "write/rkey_stale_after_dereg", hooks{state: func(s rdma.QPState) rdma.QPState { return min(s, rdma.StateRTS) }}},
		{"fresh memory is not zeroed", "life/memory_is_given_back_and_zeroed", hooks{register: func(m rdma.MR) { m.Bytes()[m.Len()/2] = 1 }}},
		{"bytes of inline writes are not counted", "counters/computed_by_hand", hooks{counters: func(c *rdma.Counters) { c.WriteBytes -= c.Inline }}},
		{"refused posts are counted", "counters/queued_work_is_not_counted", hooks{counters: func(c *rdma.Counters) { c.Sends = c.Batches }}},
		{"the flag overtakes its payload", "order/flag_after_payload_may_be_polled", hooks{post: payloadLate()}},
		{"completions come in pairs turned round", "order/completions_in_posting_order", hooks{poll: turned()}},
		{"a receive takes less than it could", "transfer/gather_and_scatter", hooks{recv: shortened}},
		{"a write is one byte short", "transfer/matrix_of_memory_kinds", hooks{post: requests(func(w *rdma.SendWR) {
			if w.Opcode == rdma.WRRDMAWrite && len(w.SGL) == 1 && w.SGL[0].Length > 4096 {
				w.SGL = []rdma.SGE{w.SGL[0]}
				w.SGL[0].Length--
			}
		})}},
		{"the last of many pieces is left out", "random/any_program_against_a_model", hooks{post: requests(func(w *rdma.SendWR) {
			if len(w.SGL) == 3 {
				w.SGL = w.SGL[:2]
			}
		})}},
		{"inline data are of the memory that they were in", "inline/needs_no_key", hooks{post: requests(func(w *rdma.SendWR) { w.Flags &^= rdma.SendInline })}},
		{"a region grants what it was not asked for", "reg/same_memory_many_rights", hooks{pin: func(_ []byte, a *rdma.Access) { *a |= rdma.AccessLocalWrite | rdma.AccessRemoteWrite }}},
		{"a region's end leaves the region", "dereg/waiting_requests_do_not_hold_it_up", hooks{closeMR: func(rdma.MR) error { return nil }}},
		{"a peer that has left is asked for ever", "close/with_work_queued", hooks{modify: func(a *rdma.QPAttr, _ *rdma.QPAttrMask) { a.Timeout = 0 }}},
		{"a queue that is too short is made as long", "cq/send_overrun_kills_it_and_its_queue_pairs", hooks{poll: drop(func(c rdma.WC) bool { return false }), create: func(i *rdma.QPInitAttr) { _ = i.SendCQ.Resize(1 << 12) }}},
		{"a queue stays as long as it was", "cq/resize", hooks{resize: func(rdma.CQ, int) error { return nil }}},
		{"the device tells of no scatter entries", "device/limits_are_usable", hooks{limits: func(a *rdma.DeviceAttr) { a.MaxSGE = 1 }}},
		{"progress is always made", "ability/progress_alone_brings_everything", hooks{progress: func(p rdma.Progresser) bool { p.Progress(); return true }}},
		{"mapped memory takes any right", "map/takes_no_bad_name", hooks{mapAccess: func(rdma.Access) rdma.Access { return 0 }}},

		{"a window is a byte longer than it was asked for", "mw/type_1_shows_its_part_and_not_a_byte_more", hooks{bind: func(b *rdma.MWBind) { b.Length++ }}},
		{"a window has the rights of its region", "mw/rights_are_the_window's", hooks{bind: func(b *rdma.MWBind) {
			b.Access |= rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
		}}},
		{"a closed window stays open", "mw/closing_the_window_ends_the_key", hooks{closeMW: func(rdma.MW) error { return nil }}},
		{"a window of length 0 is one of 1", "mw/type_1_length_0_unbinds", hooks{bind: func(b *rdma.MWBind) {
			b.Length = max(b.Length, 1)
		}}},
		{"a window of type 2 is a byte longer", "mw/type_2_shows_its_part_and_not_a_byte_more", hooks{post: bindings(func(b *rdma.MWBind) { b.Length++ })}},
		{"a send with invalidate is a send", "mw/send_with_inv_frees_it", hooks{post: requests(func(w *rdma.SendWR) {
			if w.Opcode == rdma.WRSendWithInv {
				w.Opcode = rdma.WRSend
			}
		})}},
		{"what is behind a binding does not wait for it", "mw/bind_and_invalidate_in_the_order_of_the_queue", hooks{post: bindingsLast}},

		{"an IOVA is a page off", "iova/addresses_count_from_it", hooks{iova: func(at uint64) uint64 { return at + 4096 }}},
		{"an IOVA is cut to 48 bits", "iova/range_is_exact_up_to_the_top", hooks{iova: func(at uint64) uint64 { return at << 16 >> 16 }}},
		{"a dma-buf's addresses are a page off", "dmabuf/memory_of_a_descriptor", hooks{iova: func(at uint64) uint64 { return at + 4096 }}},
		{"a change of rights keeps them", "rereg/rights", hooks{rereg: func(m rdma.MR, _ *rdma.PD, a *rdma.Access) { *a = m.Access() }}},
		{"a change of the domain keeps it", "rereg/domain", hooks{rereg: func(m rdma.MR, pd *rdma.PD, _ *rdma.Access) {
			if *pd != nil {
				*pd = m.PD()
			}
		}}},
		{"registration on demand touches all pages", "odp/registration_touches_no_page", hooks{pin: func(b []byte, a *rdma.Access) {
			for i := 0; i < len(b) && *a&rdma.AccessOnDemand != 0; i += 4096 {
				b[i] = 0
			}
		}}},
		{"advice is not taken", "odp/advice", hooks{advise: func() error { return nil }}},
		{"no advice is bad", "odp/bad_advice_is_told", hooks{advise: func() error { return nil }}},
		{"a byte more than was allowed may be touched", "sva/what_is_allowed_and_not_a_byte_more", hooks{protect: func(n *uint64, _ *rdma.Access) { *n++ }}},
		{"what is allowed is all", "sva/rights_of_every_piece", hooks{protect: func(_ *uint64, a *rdma.Access) {
			if *a != 0 {
				*a = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
			}
		}}},
		{"a layout ends a round early", "mkey/layouts_as_remote_memory", hooks{post: layouts(func(l *rdma.MkeyLayout) {
			if l.Repeat > 1 {
				l.Repeat--
			}
		})}},
		{"a stride counts from the begin of a block", "mkey/strided_to_strided", hooks{post: layouts(func(l *rdma.MkeyLayout) {
			for i := range l.Interleaved {
				l.Interleaved[i].Skip -= min(l.Interleaved[i].Skip, l.Interleaved[i].Count)
			}
		})}},
		{"a layout has all rights", "mkey/rights_are_the_layout's", hooks{post: layouts(func(l *rdma.MkeyLayout) {
			l.Access = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
		})}},

		{"a shared queue is filled in the wrong order", "srq/filled_in_posting_order_by_all", hooks{recv: overtaken()}},
		{"the limit is never reached", "srq/limit_event_comes_once", hooks{untold: []rdma.EventType{rdma.EventSRQLimitReached}}},
		{"the limit comes one late", "srq/limit_event_comes_once", hooks{modifySRQ: func(a *rdma.SRQAttr) { a.Limit-- }}},
		{"nobody hears of the last receive", "srq/last_WQE_reached", hooks{untold: []rdma.EventType{rdma.EventQPLastWQEReached}}},
		{"a request takes from the first queue that was named", "xrc/request_names_the_queue", firstQueue()},
		{"all domains are one", "xrc/queue_of_another_domain_is_refused", hooks{domain: oneDomain}},
		{"a file names no domain", "xrc/domain_of_a_file", hooks{domain: func(a *rdma.XRCDInitAttr) { a.File = nil }}},
		{"the access key does not count", "dc/wrong_key_is_refused", hooks{create: func(i *rdma.QPInitAttr) { i.DCAccessKey = 0 }, post: requests(func(w *rdma.SendWR) { w.DCAccessKey = 0 })}},
		{"connections are not counted", "dc/reconnects_on_change_alone", hooks{counters: func(c *rdma.Counters) { c.DCConnects = 1 }}},
		{"inline receive is told of and not there", "inline_recv/small_payload_is_copied_at_the_poll", hooks{create: func(i *rdma.QPInitAttr) { i.Cap.MaxInlineRecv = 0 },
			queryInit: func(i *rdma.QPInitAttr) { i.Cap.MaxInlineRecv = 32 }}},
		{"every message is at the begin of its receive", "striding/one_receive_takes_many_messages", hooks{pollEx: func(w *rdma.WCEx) { w.Offset = 0 }}},
		{"a tag is compared without its mask", "tag/earliest_entry_that_matches_whoever_sends", hooks{ops: func(wrs []rdma.OpsWR) {
			for i := range wrs {
				wrs[i].Mask = exactTag
			}
		}}},
		{"all of a tag counts for nothing", "tag/any_operations_against_a_model", hooks{ops: func(wrs []rdma.OpsWR) {
			for i := range wrs {
				wrs[i].Mask = 0
			}
		}}},
		{"a report of unexpected messages is early", "tag/new_entries_wait_until_unexpected_are_consumed", hooks{ops: func(wrs []rdma.OpsWR) {
			for i := range wrs {
				wrs[i].UnexpectedCnt++
			}
		}}},
		{"an addition is not told", "tag/operations_full_until_polled_is_ENOMEM", hooks{ops: func(wrs []rdma.OpsWR) {
			for i := range wrs {
				wrs[i].Flags &^= rdma.SendSignaled
			}
		}}},
		{"the match of a rendezvous is all there is to it", "tag/rendezvous_goes_on_without_a_poll", hooks{post: requests(func(w *rdma.SendWR) {
			if w.Opcode == rdma.WRSend && len(w.SGL) == 1 && w.SGL[0].Length == rdma.TMHLen+rdma.RVHLen {
				w.SGL = []rdma.SGE{w.SGL[0]}
				w.SGL[0].Length = rdma.TMHLen
			}
		})}},
		{"no message is the last of its receive", "striding/message_never_spans_two_receives", hooks{pollEx: func(w *rdma.WCEx) { w.Flags &^= rdma.WCFlagLastStride }}},
		{"time runs backwards", "cq_ex/timestamps_in_order", hooks{pollEx: func(w *rdma.WCEx) { w.Timestamp = ^w.Timestamp }}},
		{"nobody is notified", "channel/event_with_the_next_completion", hooks{notify: func(rdma.CQ, bool) error { return nil }}},
		{"every completion is solicited", "channel/solicited_only", hooks{notify: func(q rdma.CQ, _ bool) error { return q.ReqNotify(false) }}},
		{"nobody hears that the queue is drained", "event/SQ_drained_when_asked", hooks{untold: []rdma.EventType{rdma.EventSQDrained}}},
		{"the responder does not tell why", "event/responder_tells_its_program_why", hooks{untold: []rdma.EventType{rdma.EventQPAccessErr}}},
		{"every doorbell fetches once", "doorbell/batching_saves_doorbells_and_fetches", hooks{counters: func(c *rdma.Counters) { c.WQEFetches = c.Doorbells }}},
		{"no entry comes with its doorbell", "doorbell/inline_alone_is_a_direct_WQE", hooks{counters: func(c *rdma.Counters) { c.DirectWQEs = 0 }}},
		{"what is lost is told", "uc/without_a_receive_it_is_lost", hooks{post: requests(func(w *rdma.SendWR) {
			if len(w.SGL) > 0 {
				w.SGL = slices.Clone(w.SGL)
				w.SGL[0].LKey ^= 1
			}
		})}},
		{"the Q_Key does not count", "ud/QKey_is_checked", hooks{modify: func(a *rdma.QPAttr, _ *rdma.QPAttrMask) { a.QKey = 5 }, post: requests(func(w *rdma.SendWR) { w.RemoteQKey = 5 })}},
	}
}

// unharmed are the groups without a mutant.
var unharmed = map[string]string{
	"process": "needs other processes, which have their devices to themselves",
}

// bindings changes what windows of type 2 are to show.
func bindings(change func(*rdma.MWBind)) func([]rdma.SendWR) []rdma.SendWR {
	return requests(func(w *rdma.SendWR) {
		if w.Opcode == rdma.WRBindMW {
			change(w.Bind) // a copy: see bare
		}
	})
}

// bindingsLast executes the bindings of a list when all else is.
func bindingsLast(wrs []rdma.SendWR) []rdma.SendWR {
	out := slices.Clone(wrs)
	slices.SortStableFunc(out, func(a, b rdma.SendWR) int {
		late := func(w rdma.SendWR) int {
			if w.Opcode == rdma.WRBindMW {
				return 1
			}
			return 0
		}
		return late(a) - late(b)
	})
	return out
}

// overtaken puts every fifth receive behind the one that is posted next.
func overtaken() func([]rdma.RecvWR) []rdma.RecvWR {
	var mu sync.Mutex
	var held []rdma.RecvWR
	n := 0
	return func(wrs []rdma.RecvWR) []rdma.RecvWR {
		mu.Lock()
		defer mu.Unlock()
		if n++; n%5 == 0 {
			held = append(held, rdma.RecvWR{WRID: wrs[0].WRID, SGL: slices.Clone(wrs[0].SGL)})
			return wrs[:0]
		}
		out := append(slices.Clone(wrs), held...)
		held = nil
		return out
	}
}

// layouts changes the layouts of keys.
func layouts(change func(*rdma.MkeyLayout)) func([]rdma.SendWR) []rdma.SendWR {
	return requests(func(w *rdma.SendWR) {
		if w.Opcode == rdma.WRRegMkey && w.Layout != nil {
			l := *w.Layout
			l.Interleaved = slices.Clone(l.Interleaved)
			change(&l)
			w.Layout = &l
		}
	})
}

// firstQueue makes every request take from the shared queue that one named first.
func firstQueue() hooks {
	var mu sync.Mutex
	var first uint32
	return hooks{post: requests(func(w *rdma.SendWR) {
		mu.Lock()
		defer mu.Unlock()
		if first == 0 {
			first = w.SRQNum
		}
		w.SRQNum = first
	})}
}

// oneDomain makes every XRC domain the one of this program's file.
func oneDomain(a *rdma.XRCDInitAttr) {
	f, err := os.Open(os.Args[0])
	if err != nil {
		panic(err)
	}
	*a = rdma.XRCDInitAttr{File: f, Flags: os.O_CREATE}
}

// TestEveryGroupHasAMutant: a rule that no device can break is none.
func TestEveryGroupHasAMutant(t *testing.T) {
	caught := map[string]bool{}
	for _, m := range mutants() {
		group, _, _ := strings.Cut(m.caught, "/")
		caught[group] = true
	}
	for _, rule := range rdmatest.Rules(rdmatest.Fabric{Processes: true}) {
		group, _, _ := strings.Cut(rule.Name, "/")
		if _, excused := unharmed[group]; caught[group] == excused {
			t.Errorf("group %s: a mutant: %v, and a reason to have none: %v", group, caught[group], excused)
			caught[group] = !caught[group] // say it once
		}
	}
}

// doubled posts each request of the operation twice, the first unsignaled.
func doubled(op rdma.WROpcode) func([]rdma.SendWR) []rdma.SendWR {
	return func(wrs []rdma.SendWR) []rdma.SendWR {
		var out []rdma.SendWR
		for _, w := range wrs {
			if w.Opcode == op {
				twin := w
				twin.Flags &^= rdma.SendSignaled
				out = append(out, twin)
			}
			out = append(out, w)
		}
		return out
	}
}

// now and then a change is made, the others not.
func now(nth int, change func([]rdma.SendWR) []rdma.SendWR) func([]rdma.SendWR) []rdma.SendWR {
	var mu sync.Mutex
	count := 0
	return func(wrs []rdma.SendWR) []rdma.SendWR {
		mu.Lock()
		defer mu.Unlock()
		if count++; count%nth == 0 {
			return change(wrs)
		}
		return wrs
	}
}

// keysByIndex repairs the low 8 bits of every key whose index is known.
func keysByIndex() hooks {
	var mu sync.Mutex
	keys := map[uint32]uint32{}
	return hooks{
		register: func(m rdma.MR) {
			mu.Lock()
			defer mu.Unlock()
			keys[m.RKey()>>8] = m.RKey()
		},
		post: requests(func(w *rdma.SendWR) {
			mu.Lock()
			defer mu.Unlock()
			if k, ok := keys[w.RKey>>8]; ok {
				w.RKey = k
			}
		}),
	}
}

// payloadLate holds the unsignaled write of a list of two back until the next
// post.
func payloadLate() func([]rdma.SendWR) []rdma.SendWR {
	var held []rdma.SendWR
	return func(wrs []rdma.SendWR) []rdma.SendWR {
		if len(wrs) != 2 || wrs[0].Flags&rdma.SendSignaled != 0 {
			return wrs
		}
		now := append(held, wrs[1])
		wrs[0].SGL = append([]rdma.SGE(nil), wrs[0].SGL...)
		held = []rdma.SendWR{wrs[0]}
		return now
	}
}

// turned holds every second completion back to give it before the first.
func turned() func([]rdma.WC) []rdma.WC {
	var mu sync.Mutex
	var held []rdma.WC
	return func(wcs []rdma.WC) []rdma.WC {
		mu.Lock()
		defer mu.Unlock()
		if len(wcs) == 1 && held == nil && wcs[0].Opcode == rdma.WCRDMARead {
			held = append(held, wcs[0])
			return wcs[:0]
		}
		if len(wcs) == 1 && held != nil {
			wcs[0], held[0] = held[0], wcs[0]
			if held[0].Opcode == rdma.WCRDMARead {
				held = nil
			}
		}
		return wcs
	}
}

// shortened makes the first SGE of a list of receives a byte shorter and the
// last a byte longer.
func shortened(wrs []rdma.RecvWR) []rdma.RecvWR {
	out := append([]rdma.RecvWR(nil), wrs...)
	for i := range out {
		if n := len(out[i].SGL); n > 1 {
			out[i].SGL = append([]rdma.SGE(nil), out[i].SGL...)
			out[i].SGL[0].Length--
			out[i].SGL[n-1].Length++
		}
	}
	return out
}

// mutantVar names the mutant that a process of this test binary is to test.
const mutantVar = "GORUN_RDMATEST_MUTANT"

// TestMutant runs the suite on one mutant, in a process of its own. Run as a
// test it is empty.
func TestMutant(t *testing.T) {
	name, asked := os.LookupEnv(mutantVar)
	if !asked {
		return
	}
	if name == "none" {
		rdmatest.Run(t, rdmatest.Fabric{Open: mutated(hooks{})})
		return
	}
	for _, m := range mutants() {
		if m.name == name {
			rdmatest.Run(t, rdmatest.Fabric{Open: mutated(m.hooks), Patience: 500 * time.Millisecond})
			return
		}
	}
	t.Fatalf("no mutant %q", name)
}

// TestSuiteCatchesMutants fails where the suite passes a device with a fault.
func TestSuiteCatchesMutants(t *testing.T) {
	run := func(name, only string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMutant$/"+only, "-test.v", "-test.failfast")
		cmd.Env = append(os.Environ(), mutantVar+"="+name)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	cases := map[string]bool{}
	for _, m := range mutants() {
		group, rule, _ := strings.Cut(m.caught, "/")
		only := "^" + group + "$/^" + rule + "$"
		if !cases[only] {
			cases[only] = true
			t.Run("sound/"+rule, func(t *testing.T) {
				t.Parallel()
				out, err := run("none", only)
				if err != nil || !strings.Contains(out, "--- PASS: TestMutant/"+m.caught) {
					t.Errorf("the case fails on a sound device: %v\n%s", err, out)
				}
			})
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			out, err := run(m.name, only)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(out, "--- FAIL: TestMutant/"+m.caught) {
				t.Errorf("case %s lets the mutant pass: %v\n%s", m.caught, err, out)
			}
		})
	}
}
