//go:build cgo && linux

package main

import (
	"os"
	"slices"
	"strings"
)

// An info is MPI_Info: keys with values, in the order in which they were set.
type info struct {
	handle uintptr
	pairs  []pair
}

type pair struct{ key, value string }

var (
	infos  = newTable[*info](kindInfo)
	envOf  *info // MPI_INFO_ENV, made when it is asked for
	errKey = wrong(c_ERR_INFO_KEY, "the key is NULL, empty or too long")
)

func infoOf(h uintptr) *info {
	if h == c_INFO_ENV {
		if envOf == nil {
			envOf = environment()
		}
		return envOf
	}
	if n := infos.find(h); n != nil {
		return *n
	}
	return nil
}

// environment is what MPI_INFO_ENV says of the process.
func environment() *info {
	n := &info{handle: c_INFO_ENV}
	if len(os.Args) > 0 {
		n.set("command", os.Args[0])
		n.set("argv", strings.Join(os.Args[1:], " "))
	}
	if host, err := os.Hostname(); err == nil {
		n.set("host", host)
	}
	if dir, err := os.Getwd(); err == nil {
		n.set("wdir", dir)
	}
	n.set("thread_level", "MPI_THREAD_SERIALIZED")
	return n
}

func (n *info) set(key, value string) {
	if i := n.find(key); i >= 0 {
		n.pairs[i].value = value
	} else {
		n.pairs = append(n.pairs, pair{key, value})
	}
}

// value is that of a key, "" where there is none.
func (n *info) value(key string) string {
	if n != nil {
		if i := n.find(key); i >= 0 {
			return n.pairs[i].value
		}
	}
	return ""
}

func (n *info) find(key string) int {
	return slices.IndexFunc(n.pairs, func(p pair) bool { return p.key == key })
}

// copy is a new one with the same pairs, also of nil.
func (n *info) copy() *info {
	fresh := &info{}
	if n != nil {
		fresh.pairs = slices.Clone(n.pairs)
	}
	return fresh
}

// The hints of MPI's that objects keep; they change nothing.
var (
	commHints   = []string{"mpi_assert_no_any_tag", "mpi_assert_no_any_source", "mpi_assert_exact_length", "mpi_assert_allow_overtaking", "mpi_assert_strict_start_ordering"}
	windowHints = []string{"no_locks", "accumulate_ordering", "accumulate_ops", "mpi_accumulate_granularity", "same_size", "same_disp_unit", "alloc_shared_noncontig"}
	fileHints   = []string{"access_style", "collective_buffering", "cb_block_size", "cb_buffer_size", "cb_nodes", "chunked", "chunked_item", "chunked_size", "filename", "file_perm", "io_node_list", "nb_proc", "num_io_nodes", "striping_factor", "striping_unit", "mpi_minimum_memory_alignment"}
)

// known is a copy of those pairs whose keys MPI knows: others are ignored.
func (n *info) known(keys []string) *info {
	fresh := n.copy()
	fresh.pairs = slices.DeleteFunc(fresh.pairs, func(p pair) bool { return !slices.Contains(keys, p.key) })
	return fresh
}

func (f *frame) putInfo(to ptr, n *info) {
	h, slot := infos.enter()
	*slot, n.handle = n, h
	f.putHandle(to, h)
}

// some is an error for MPI_INFO_NULL, and for MPI_INFO_ENV where it is to be changed.
func (n *info) some(change bool) error {
	if n == nil {
		return wrong(c_ERR_INFO, "the info object is MPI_INFO_NULL")
	}
	if change && n.handle == c_INFO_ENV {
		return wrong(c_ERR_INFO, "MPI_INFO_ENV cannot be changed")
	}
	return nil
}

// key is a key of C's.
func key(at ptr) (string, error) {
	s := text(at)
	if s = strings.TrimSpace(s); s == "" || len(s) >= c_MAX_INFO_KEY {
		return "", errKey
	}
	return s, nil
}

func mpiInfoCreate(f *frame, to ptr) error {
	if to == nil {
		return errNull
	}
	f.putInfo(to, &info{})
	return nil
}

func mpiInfoCreateEnv(f *frame, _ int, _, to ptr) error {
	if to == nil {
		return errNull
	}
	f.putInfo(to, environment().copy())
	return nil
}

func mpiInfoDup(f *frame, n *info, to ptr) error {
	if err := n.some(false); err != nil {
		return err
	}
	if to == nil {
		return errNull
	}
	f.putInfo(to, n.copy())
	return nil
}

func mpiInfoFree(f *frame, at ptr) error {
	h := f.handleAt(at)
	n := infoOf(h)
	if n == nil {
		return badHandle(c_ERR_INFO, "info object", h)
	}
	if err := n.some(true); err != nil {
		return err
	}
	infos.leave(h)
	f.putHandle(at, c_INFO_NULL)
	return nil
}

func mpiInfoSet(_ *frame, n *info, at, valueAt ptr) error {
	if err := n.some(true); err != nil {
		return err
	}
	k, err := key(at)
	if err != nil {
		return err
	}
	value := text(valueAt)
	if valueAt == nil || len(value) >= c_MAX_INFO_VAL {
		return wrong(c_ERR_INFO_VALUE, "the value is NULL or too long")
	}
	n.set(k, strings.TrimSpace(value))
	return nil
}

func mpiInfoDelete(_ *frame, n *info, at ptr) error {
	if err := n.some(true); err != nil {
		return err
	}
	k, err := key(at)
	if err != nil {
		return err
	}
	i := n.find(k)
	if i < 0 {
		return wrong(c_ERR_INFO_NOKEY, "there is no key %q", k)
	}
	n.pairs = slices.Delete(n.pairs, i, i+1)
	return nil
}

// lookup is the value of a key.
func (n *info) lookup(at ptr) (value string, found bool, err error) {
	if err := n.some(false); err != nil {
		return "", false, err
	}
	k, err := key(at)
	if err != nil {
		return "", false, err
	}
	if i := n.find(k); i >= 0 {
		return n.pairs[i].value, true, nil
	}
	return "", false, nil
}

func mpiInfoGet(f *frame, n *info, at ptr, room int, to, flag ptr) error {
	value, found, err := n.lookup(at)
	if err != nil {
		return err
	}
	if room < 0 {
		return wrong(c_ERR_ARG, "the value's length is %d", room)
	}
	f.putBool(flag, found)
	if found {
		f.putText(to, nil, room+1, value)
	}
	return nil
}

func mpiInfoGetString(f *frame, n *info, at, length, to, flag ptr) error {
	value, found, err := n.lookup(at)
	if err != nil {
		return err
	}
	room := intsAt(length, 1)
	if room == nil {
		return errNull
	}
	f.putBool(flag, found)
	if found {
		if room[0] > 0 {
			f.putText(to, nil, int(room[0]), value)
		}
		room[0] = int32(len(value) + 1)
	}
	return nil
}

func mpiInfoGetValuelen(f *frame, n *info, at, length, flag ptr) error {
	value, found, err := n.lookup(at)
	if err != nil {
		return err
	}
	f.putBool(flag, found)
	if found {
		f.put(length, len(value))
	}
	return nil
}

func mpiInfoGetNkeys(f *frame, n *info, to ptr) error {
	if err := n.some(false); err != nil {
		return err
	}
	f.put(to, len(n.pairs))
	return nil
}

func mpiInfoGetNthkey(f *frame, n *info, i int, to ptr) error {
	if err := n.some(false); err != nil {
		return err
	}
	if i < 0 || i >= len(n.pairs) {
		return wrong(c_ERR_ARG, "key %d of %d", i, len(n.pairs))
	}
	f.putText(to, nil, c_MAX_INFO_KEY, n.pairs[i].key)
	return nil
}
