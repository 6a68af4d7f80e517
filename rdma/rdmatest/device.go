package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/gorun-mpi/gorun/rdma"
)

func deviceCases() []testCase {
	return []testCase{
		{name: "device/limits_are_usable", nodes: 1, run: single(deviceLimits)},
		{name: "device/port_and_gid_tables", nodes: 2, run: devicePorts},
		{name: "device/contexts_are_apart", nodes: 1, run: single(deviceContexts)},
		{name: "device/unknown_gid_is_refused", nodes: 2, run: deviceUnknownGID},
		{name: "device/endpoint_garbage_is_refused", nodes: 2, run: deviceEndpoint},
		{name: "device/supports_all_but_what_it_lacks", nodes: 2, run: deviceSupports},
		{name: "device/verbs_of_what_it_lacks_are_refused", nodes: 1, run: single(deviceLacks)},
	}
}

func deviceLimits(r *rig, s *side) {
	if s.ctx.Device().Name() == "" {
		r.Errorf("the device has no name")
	}
	d := s.ctx.QueryDevice()
	for _, limit := range []struct {
		name     string
		got, min uint64
	}{
		{"MaxQP", uint64(d.MaxQP), 64}, {"MaxQPWR", uint64(d.MaxQPWR), 64}, {"MaxSGE", uint64(d.MaxSGE), 4},
		{"MaxCQ", uint64(d.MaxCQ), 16}, {"MaxCQE", uint64(d.MaxCQE), 256}, {"MaxMR", uint64(d.MaxMR), 64},
		{"MaxMRSize", d.MaxMRSize, 1 << 24}, {"MaxPD", uint64(d.MaxPD), 4},
		{"MaxQPRdAtom", uint64(d.MaxQPRdAtom), 1}, {"MaxQPInitRdAtom", uint64(d.MaxQPInitRdAtom), 1},
		{"MaxInlineData", uint64(d.MaxInlineData), 64},
	} {
		if limit.got < limit.min {
			r.Errorf("%s is %d, want at least %d", limit.name, limit.got, limit.min)
		}
	}
}

func devicePorts(r *rig) {
	gids := map[rdma.GID]int{}
	for i, s := range r.sides {
		p := result(s.ctx.QueryPort(1)).must(r, "QueryPort(1)")
		if p.State != rdma.PortActive || p.ActiveMTU.Bytes() == 0 || p.ActiveMTU > p.MaxMTU || p.GIDTblLen < 1 || p.MaxMsgSz < 1<<24 {
			r.Errorf("side %d: port 1 is %+v", i, p)
		}
		for _, port := range []uint8{0, 255} {
			result(s.ctx.QueryPort(port)).refused(r, "QueryPort of a port that is not there", rdma.ErrInvalid)
			result(s.ctx.QueryGID(port, 0)).refused(r, "QueryGID of a port that is not there", rdma.ErrInvalid)
		}
		for _, index := range []int{-1, p.GIDTblLen, 1 << 20} {
			result(s.ctx.QueryGID(1, index)).refused(r, "QueryGID outside the table", rdma.ErrInvalid)
		}
		gid, err := s.ctx.QueryGID(1, 0)
		if err != nil || gid == (rdma.GID{}) {
			r.Errorf("side %d: GID 0 is %v, %v", i, gid, err)
		}
		if other, twice := gids[gid]; twice {
			r.Errorf("sides %d and %d have the same GID %v", other, i, gid)
		}
		gids[gid] = i
	}
}

// deviceContexts opens the device once more: objects of one context must not
// be usable with those of the other.
func deviceContexts(r *rig, s *side) {
	other := result(s.ctx.Device().Open()).owned(r, "a second Open")
	cq := result(other.CreateCQ(16)).owned(r, "CreateCQ")
	u := defaults()
	for i, init := range []rdma.QPInitAttr{
		{SendCQ: cq, RecvCQ: s.rcq, Cap: u.cap, Type: rdma.RC},
		{SendCQ: s.scq, RecvCQ: cq, Cap: u.cap, Type: rdma.RC},
	} {
		result(s.pd.CreateQP(init)).refused(r, fmt.Sprintf("case %d: a queue pair with a CQ of another context was made", i), rdma.ErrInvalid)
	}
	if c := other.Counters(); c != (rdma.Counters{}) {
		r.Errorf("a fresh context counts %+v", c)
	}
}

func deviceUnknownGID(r *rig) {
	l := r.link(func(u *setup) { u.until = [2]rdma.QPState{rdma.StateInit, rdma.StateInit} })
	attr := l.attrs(0, defaults())
	for i := range attr.AV.DGID {
		attr.AV.DGID[i] ^= 0x5a
	}
	attr.State = rdma.StateRTR
	if err := l.qa.Modify(attr, rtrMask); err == nil {
		r.Errorf("a queue pair was moved to RTR towards %v, which nobody introduced", attr.AV.DGID)
	}
	equal(r, l.qa.State(), rdma.StateInit, "after the refusal the state is")
}

func deviceEndpoint(r *rig) {
	a, b := r.sides[0].ctx, r.sides[1].ctx
	ep, ok := b.(rdma.Endpointer)
	if !ok {
		return // nothing to be told
	}
	gid := result(b.QueryGID(1, 0)).must(r, "QueryGID")
	good := ep.Endpoint()
	if len(good) == 0 || len(good) > 1024 {
		r.Errorf("the endpoint has %d bytes, want 1 to 1024: it travels in cards", len(good))
	}
	if err := a.(rdma.Endpointer).AddEndpoint(gid, nil); err == nil {
		r.Errorf("an empty endpoint was taken")
	}
	for n := 1; n < len(good); n++ {
		if err := a.(rdma.Endpointer).AddEndpoint(gid, good[:n:n]); err == nil {
			r.Errorf("the first %d of the endpoint's %d bytes were taken", n, len(good))
		}
	}
	// The refusals have not spoiled what is known.
	r.link().works(1)
}

// deviceSupports holds Supports to what the fabric says, in both directions.
func deviceSupports(r *rig) {
	for i, s := range r.sides {
		for _, f := range rdma.Features() {
			err := s.ctx.Supports(f)
			switch lacks := slices.Contains(r.f.Lacks, f); {
			case lacks && !errors.Is(err, rdma.ErrNotSupported):
				r.Errorf("side %d lacks %v, Supports says %v: want an error wrapping %q", i, f, err, rdma.ErrNotSupported)
			case !lacks && err != nil:
				r.Errorf("side %d: Supports(%v): %v", i, f, err)
			}
		}
		r.wantErr("Supports of a feature that there is not", s.ctx.Supports(255), rdma.ErrNotSupported)
	}
}

// deviceLacks tries the verb that each lacking feature begins with.
func deviceLacks(r *rig, s *side) {
	qp := func(typ rdma.QPType) func() (io.Closer, error) {
		return func() (io.Closer, error) {
			return s.pd.CreateQP(rdma.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, Type: typ, Cap: rdma.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
		}
	}
	srq := func(typ rdma.SRQType) func() (io.Closer, error) {
		return func() (io.Closer, error) {
			return s.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 1, MaxSGE: 1}, Type: typ, CQ: s.rcq, MaxTags: 1, MaxOps: 1})
		}
	}
	for feature, try := range map[rdma.Feature]func() (io.Closer, error){
		rdma.FeatureRC:          qp(rdma.RC),
		rdma.FeatureUC:          qp(rdma.UC),
		rdma.FeatureUD:          qp(rdma.UD),
		rdma.FeatureXRC:         func() (io.Closer, error) { return s.ctx.OpenXRCD(rdma.XRCDInitAttr{Flags: os.O_CREATE}) },
		rdma.FeatureDC:          qp(rdma.DCI),
		rdma.FeatureSRQ:         srq(rdma.SRQBasic),
		rdma.FeatureTagMatching: srq(rdma.SRQTagMatching),
		rdma.FeatureMW1:         func() (io.Closer, error) { return s.pd.AllocMW(rdma.MWType1) },
		rdma.FeatureMW2:         func() (io.Closer, error) { return s.pd.AllocMW(rdma.MWType2) },
		rdma.FeatureSVA:         func() (io.Closer, error) { return s.pd.ShareVA() },
		rdma.FeatureUMR:         func() (io.Closer, error) { return s.pd.CreateMkey(1) },
		rdma.FeatureCompChannel: func() (io.Closer, error) { return s.ctx.CreateCompChannel() },
		rdma.FeatureExtendedCQ: func() (io.Closer, error) {
			return s.ctx.CreateCQEx(rdma.CQInitAttr{CQE: 1, Timestamps: true})
		},
		rdma.FeatureAsyncEvents: func() (io.Closer, error) {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_, err := s.ctx.GetAsyncEvent(ended)
			return nil, err
		},
	} {
		if !slices.Contains(r.f.Lacks, feature) {
			continue
		}
		made, err := try()
		r.wantErr("making use of "+feature.String(), err, rdma.ErrNotSupported)
		if err == nil && made != nil {
			r.own(made)
		}
	}
}
