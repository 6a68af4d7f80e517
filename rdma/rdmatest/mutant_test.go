package rdmatest_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/rdmatest"
	"github.com/gorun-mpi/gorun/rdma/soft"
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
				out, err := run("none", only)
				if err != nil || !strings.Contains(out, "--- PASS: TestMutant/"+m.caught) {
					t.Errorf("the case fails on a sound device: %v\n%s", err, out)
				}
			})
		}
		t.Run(m.name, func(t *testing.T) {
			out, err := run(m.name, only)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(out, "--- FAIL: TestMutant/"+m.caught) {
				t.Errorf("case %s lets the mutant pass: %v\n%s", m.caught, err, out)
			}
		})
	}
}

// mutated opens nodes in one segment with hooks between.
func mutated(h hooks) func(testing.TB, int) []rdmatest.Node {
	return func(t testing.TB, n int) []rdmatest.Node {
		segment, err := shm.NewLocal(shm.Geometry{Ranks: n, ArenaSize: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { segment.Close() })
		var nodes []rdmatest.Node
		for i := range n {
			p, err := soft.New(soft.Config{Segment: segment, Rank: i, Host: "here"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			devices, err := p.Devices()
			if err != nil {
				t.Fatal(err)
			}
			ctx, err := devices[0].Open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ctx.Close() })
			nodes = append(nodes, rdmatest.Local(&mutantContext{ctx, h}))
		}
		return nodes
	}
}

type (
	mutantContext struct {
		rdma.Context
		h hooks
	}
	mutantPD struct {
		rdma.PD
		c *mutantContext
	}
	mutantMR struct {
		rdma.MR
		d *mutantPD
	}
	mutantCQ struct {
		rdma.CQ
		h hooks
	}
	mutantQP struct {
		rdma.QP
		h hooks
	}
)

func (c *mutantContext) Endpoint() []byte { return c.Context.(rdma.Endpointer).Endpoint() }

func (c *mutantContext) AddEndpoint(gid rdma.GID, e []byte) error {
	return c.Context.(rdma.Endpointer).AddEndpoint(gid, e)
}

func (c *mutantContext) AllocPD() (rdma.PD, error) {
	pd, err := c.Context.AllocPD()
	if err != nil {
		return nil, err
	}
	return &mutantPD{pd, c}, nil
}

func (c *mutantContext) CreateCQ(n int) (rdma.CQ, error) {
	cq, err := c.Context.CreateCQ(n)
	if err != nil {
		return nil, err
	}
	return &mutantCQ{cq, c.h}, nil
}

func (c *mutantContext) Counters() rdma.Counters {
	n := c.Context.Counters()
	if c.h.counters != nil {
		c.h.counters(&n)
	}
	return n
}

func (d *mutantPD) Context() rdma.Context { return d.c }

func (d *mutantPD) region(m rdma.MR, err error) (rdma.MR, error) {
	if err != nil {
		return nil, err
	}
	if d.c.h.register != nil {
		d.c.h.register(m)
	}
	return &mutantMR{m, d}, nil
}

func (d *mutantPD) AllocMR(n int, a rdma.Access) (rdma.MR, error) {
	return d.region(d.PD.AllocMR(n, a))
}
func (d *mutantPD) RegMR(b []byte, a rdma.Access) (rdma.MR, error) { return d.region(d.PD.RegMR(b, a)) }

func (d *mutantPD) CreateQP(i rdma.QPInitAttr) (rdma.QP, error) {
	if cq, ok := i.SendCQ.(*mutantCQ); ok {
		i.SendCQ = cq.CQ
	}
	if cq, ok := i.RecvCQ.(*mutantCQ); ok {
		i.RecvCQ = cq.CQ
	}
	qp, err := d.PD.CreateQP(i)
	if err != nil {
		return nil, err
	}
	return &mutantQP{qp, d.c.h}, nil
}

func (d *mutantPD) Close() error {
	if d.c.h.closePD != nil {
		return d.c.h.closePD(d.PD)
	}
	return d.PD.Close()
}

func (m *mutantMR) PD() rdma.PD { return m.d }

func (m *mutantMR) Close() error {
	if m.d.c.h.closeMR != nil {
		return m.d.c.h.closeMR(m.MR)
	}
	return m.MR.Close()
}

func (q *mutantCQ) Poll(wc []rdma.WC) (int, error) {
	n, err := q.CQ.Poll(wc)
	if err == nil && n > 0 && q.h.poll != nil {
		n = len(q.h.poll(wc[:n:n]))
	}
	return n, err
}

func (q *mutantCQ) Close() error {
	if q.h.closeCQ != nil {
		return q.h.closeCQ(q.CQ)
	}
	return q.CQ.Close()
}

func (q *mutantQP) PostSend(wrs []rdma.SendWR) (int, error) {
	if q.h.post == nil {
		n, err := q.QP.PostSend(wrs)
		if err != nil && q.h.refused != nil && n < len(wrs) {
			q.h.refused(q.QP, wrs[n+1:])
		}
		return n, err
	}
	if n, err := q.QP.PostSend(q.h.post(wrs)); err != nil {
		return min(n, len(wrs)), fmt.Errorf("mutated: %w", err)
	}
	return len(wrs), nil
}

func (q *mutantQP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	if q.h.recv != nil {
		wrs = q.h.recv(wrs)
	}
	return q.QP.PostRecv(wrs)
}

func (q *mutantQP) Modify(a rdma.QPAttr, m rdma.QPAttrMask) error {
	if q.h.modify != nil {
		q.h.modify(&a, &m)
	}
	return q.QP.Modify(a, m)
}

func (q *mutantQP) State() rdma.QPState {
	s := q.QP.State()
	if q.h.state != nil {
		s = q.h.state(s)
	}
	return s
}

func (q *mutantQP) Query() (rdma.QPAttr, rdma.QPInitAttr) {
	a, i := q.QP.Query()
	if q.h.query != nil {
		q.h.query(&a)
	}
	return a, i
}
