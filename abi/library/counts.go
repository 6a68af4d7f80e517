//go:build cgo && linux

package main

import "github.com/gorun-mpi/gorun/rank"

// status as package rank has it, for its counts.
func (s *cStatus) plain() rank.Status { return rank.Status{Bytes: s.bytes()} }

func mpiGetCount(f *frame, status ptr, t *datatype, to ptr) error {
	s := statusAt(status)
	if s == nil {
		return wrong(c_ERR_ARG, "the status is MPI_STATUS_IGNORE")
	}
	n := s.plain().GetCount(t.Datatype)
	if n == rank.Undefined {
		n = c_UNDEFINED
	}
	f.putWide(to, n)
	return nil
}

func elements(status ptr, t *datatype) (int, error) {
	s := statusAt(status)
	if s == nil {
		return 0, wrong(c_ERR_ARG, "the status is MPI_STATUS_IGNORE")
	}
	n := s.plain().GetElements(t.Datatype)
	if n == rank.Undefined {
		n = c_UNDEFINED
	}
	return n, nil
}

func mpiGetElements(f *frame, status ptr, t *datatype, to ptr) error {
	n, err := elements(status, t)
	f.putWide(to, n)
	return err
}

func mpiGetElementsX(f *frame, status ptr, t *datatype, to ptr) error {
	n, err := elements(status, t)
	f.putLong(to, n)
	return err
}

func mpiStatusSetElements(_ *frame, status ptr, t *datatype, n int) error {
	if status == nil || n < 0 {
		return errNull
	}
	statusAt(status).setBytes(t.bytesOf(n))
	return nil
}

func mpiStatusSetElementsX(f *frame, status ptr, t *datatype, n int) error {
	return mpiStatusSetElements(f, status, t, n)
}

// bytesOf is how many bytes n basic elements have, counted from the first item on.
func (t *datatype) bytesOf(n int) int {
	all := rank.Status{Bytes: t.size}
	per := all.GetElements(t.Datatype)
	if per <= 0 {
		return 0
	}
	bytes := n / per * t.size
	for rest := n % per; rest > 0 && bytes < (n/per+1)*t.size; bytes++ {
		if s := (rank.Status{Bytes: bytes - n/per*t.size}); s.GetElements(t.Datatype) == rest {
			break
		}
	}
	return bytes
}

func mpiStatusSetCancelled(_ *frame, status ptr, flag int) error {
	if status == nil {
		return errNull
	}
	statusAt(status).cancelled = 0
	if flag != 0 {
		statusAt(status).cancelled = 1
	}
	return nil
}

func mpiTestCancelled(f *frame, status, flag ptr) error {
	if status == nil {
		return errNull
	}
	f.putBool(flag, statusAt(status).cancelled != 0)
	return nil
}

func mpiPack(f *frame, from ptr, count int, t *datatype, to ptr, room int, position ptr, c *comm) error {
	return f.packed(c, f.buffer(from, count, t), to, room, position, true)
}

func mpiUnpack(f *frame, from ptr, room int, position, to ptr, count int, t *datatype, c *comm) error {
	return f.packed(c, f.buffer(to, count, t), from, room, position, false)
}

func (f *frame) packed(c *comm, b rank.Buffer, at ptr, room int, position ptr, pack bool) error {
	switch {
	case f.err != nil:
		return f.err
	case position == nil:
		return errNull
	case room < 0:
		return wrong(c_ERR_ARG, "the size is %d", room)
	case at == nil && room > 0:
		return wrong(c_ERR_BUFFER, "the packed data is at NULL")
	}
	where := f.wide(position, 1)[0]
	mem := memory(address(at), room)
	var err error
	if pack {
		where, err = rank.Pack(c.Comm, mem, where, b)
	} else {
		where, err = rank.Unpack(c.Comm, mem, where, b)
	}
	if err == nil {
		f.putWide(position, where)
	}
	return err
}

func mpiPackSize(f *frame, count int, t *datatype, _ *comm, to ptr) error {
	if count < 0 {
		return wrong(c_ERR_COUNT, "the count is %d: expected 0 or more", count)
	}
	n, err := rank.PackSize(count, t.Datatype)
	f.putWide(to, n)
	return err
}

func mpiGetAddress(f *frame, at, to ptr) error {
	f.putLong(to, int(address(at)))
	return nil
}
