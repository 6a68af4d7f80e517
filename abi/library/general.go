//go:build cgo && linux

package main

import "github.com/gorun-mpi/gorun/rank"

// Requests of the program, messages in partitions, and looks at several requests.

func mpiGrequestStart(f *frame, query, free, cancel, extra, to ptr) error {
	if query == nil || free == nil || cancel == nil || to == nil {
		return errNull
	}
	failed := func(code int) error {
		if code == c_SUCCESS {
			return nil
		}
		return &mistake{code, "a function of the generalized request has failed"}
	}
	g, q, err := root.StartGeneral(rank.GeneralCalls{
		Query: func() (rank.Status, error) {
			var st cStatus
			code := callQuery(query, extra, &st)
			return st.back(), failed(code)
		},
		Free: func() error { return failed(callFree(free, extra)) },
	})
	if err = f.to(to, base()).started(q, err); err == nil {
		made := requests.find(f.handleAt(to))
		made.general = g
		made.cancel = func(complete bool) error { return failed(callCancel(cancel, extra, complete)) }
	}
	return err
}

// back is a status of C's in package rank's terms: the reverse of set.
func (s *cStatus) back() rank.Status {
	st := rank.Status{Source: int(s.source), Tag: int(s.tag), Bytes: s.bytes(), Cancelled: s.cancelled != 0}
	if s.source == c_PROC_NULL {
		st.Source = rank.ProcNull
	}
	if s.tag == c_ANY_TAG {
		st.Tag = rank.AnyTag
	}
	return st
}

func mpiGrequestComplete(_ *frame, q *request) error {
	if q == nil || q.general == nil {
		return wrong(c_ERR_REQUEST, "the request is no generalized request")
	}
	q.complete = true
	q.general.Complete()
	return nil
}

func mpiPsendInit(f *frame, at ptr, partitions, count int, t *datatype, dst, tag int, c *comm, _ *info, request ptr) error {
	b, to, n := f.partitioned(at, partitions, count, t), f.peer(dst, false), f.tag(tag, false)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.PsendInit(b, partitions, to, n))
}

func mpiPrecvInit(f *frame, at ptr, partitions, count int, t *datatype, src, tag int, c *comm, _ *info, request ptr) error {
	b, from, n := f.partitioned(at, partitions, count, t), f.peer(src, false), f.tag(tag, false)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.PrecvInit(b, partitions, from, n))
}

func (f *frame) partitioned(at ptr, partitions, count int, t *datatype) rank.Buffer {
	if partitions < 1 {
		f.bad(wrong(c_ERR_ARG, "%d partitions: expected 1 or more", partitions))
		return rank.Buffer{}
	}
	return f.blocks(flat{at, count, t}, partitions)
}

// some is an error for MPI_REQUEST_NULL.
func (q *request) some() error {
	if q == nil {
		return wrong(c_ERR_REQUEST, "the request is MPI_REQUEST_NULL")
	}
	return nil
}

func mpiPready(_ *frame, partition int, q *request) error {
	if err := q.some(); err != nil {
		return err
	}
	return q.Pready(partition)
}

func mpiPreadyRange(_ *frame, low, high int, q *request) error {
	if err := q.some(); err != nil {
		return err
	}
	return q.PreadyRange(low, high)
}

func mpiPreadyList(_ *frame, n int, at ptr, q *request) error {
	if err := q.some(); err != nil {
		return err
	}
	list := ints(at, n)
	if err := checkList(list, n, c_ERR_ARG); err != nil {
		return err
	}
	return q.PreadyList(list)
}

func mpiParrived(f *frame, q *request, partition int, flag ptr) error {
	if flag == nil {
		return errNull
	}
	if q == nil {
		f.putBool(flag, true)
		return nil
	}
	there, err := q.Parrived(partition)
	f.putBool(flag, there)
	return err
}

// look is the state of the i-th request, which stays as it is. none: it is null or not active.
func (b *batch) look(i int) (st rank.Status, done, none bool, err error) {
	if b.requests[i] == (rank.Request{}) {
		return nothing, true, true, nil
	}
	st, done, err = b.requests[i].GetStatus()
	return st, done, false, err
}

func mpiRequestGetStatusAll(f *frame, n int, list, flag, statuses ptr) error {
	b := f.all(n, list)
	if f.err != nil || flag == nil {
		return f.orNull()
	}
	all := true
	for i := range b.requests {
		st, done, _, err := b.look(i)
		if err != nil {
			return err
		}
		b.statuses[i] = st
		all = all && done
	}
	for i := 0; all && i < len(b.requests); i++ {
		statusIn(statuses, i).set(&b.statuses[i])
	}
	f.putBool(flag, all)
	return nil
}

func mpiRequestGetStatusAny(f *frame, n int, list, index, flag, status ptr) error {
	b := f.all(n, list)
	if f.err != nil || index == nil || flag == nil {
		return f.orNull()
	}
	active := false
	for i := range b.requests {
		st, done, none, err := b.look(i)
		if err != nil {
			return err
		}
		if active = active || !none; done && !none {
			f.put(index, i)
			f.putBool(flag, true)
			statusAt(status).set(&st)
			return nil
		}
	}
	f.put(index, c_UNDEFINED)
	f.putBool(flag, !active)
	if !active {
		statusAt(status).empty()
	}
	return nil
}

func mpiRequestGetStatusSome(f *frame, n int, list, count, indices, statuses ptr) error {
	b := f.all(n, list)
	if f.err != nil || count == nil || indices == nil && n > 0 {
		return f.orNull()
	}
	k, active := 0, false
	for i := range b.requests {
		st, done, none, err := b.look(i)
		if err != nil {
			return err
		}
		if active = active || !none; done && !none {
			intsAt(indices, n)[k] = int32(i)
			statusIn(statuses, k).set(&st)
			k++
		}
	}
	if !active {
		k = c_UNDEFINED
	}
	f.put(count, k)
	return nil
}
