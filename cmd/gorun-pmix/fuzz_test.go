package main

import (
	"os"
	"testing"

	"github.com/gorun-mpi/gorun/internal/pmix"
	"github.com/gorun-mpi/gorun/internal/pmix/link"
)

// An asking is a request of a process that counts its answers.
type asking struct {
	t       *testing.T
	what    byte
	answers int
}

func (a *asking) answer() {
	if a.answers++; a.answers > 1 {
		a.t.Errorf("an upcall of kind %d is answered twice", a.what)
	}
}

func (a *asking) Done(pmix.Status)                   { a.answer() }
func (a *asking) Data(pmix.Status, []byte)           { a.answer() }
func (a *asking) Found(pmix.Status, []pmix.Pair)     { a.answer() }
func (a *asking) Spawned(pmix.Status, string)        { a.answer() }
func (a *asking) Infos(_ pmix.Status, l []pmix.Info) { a.answer(); a.check(l) }

// check fails for values that libpmix is not given (pmix.Info).
func (a *asking) check(list []pmix.Info) {
	for _, i := range list {
		switch v := i.Value.(type) {
		case string, bool, uint32, uint64, pmix.Status, float32, []byte, []pmix.Process, []pmix.Proc:
		case []pmix.Info:
			a.check(v)
		default:
			a.t.Errorf("%s is a %T", i.Name, v)
		}
	}
}

// FuzzUpcalls has processes ask for anything, and the host answer anything, or nothing at
// all. An upcall is four bytes: its kind, a rank, how many bytes of text follow, and
// how it is answered; then the text. Every upcall that is answered is so once. What libpmix
// hands over as bytes that it does not read itself has targets of its own
// (pmix.FuzzUnpackHelp, link.FuzzDecoder).
func FuzzUpcalls(f *testing.F) {
	for what := range byte(12) {
		f.Add([]byte{what, 0, 1, 0, 'a', what, 255, 1, 4, 'b', what, 1, 0, 9})
	}
	for _, key := range []string{"PMIX_QUERY_NAMESPACES", "PMIX_QUERY_PROC_TABLE", "PMIX_QUERY_LOCAL_PROC_TABLE", "PMIX_JOB_SIZE", "PMIX_NUM_NODES", "PMIX_QUERY_JOB_STATUS",
		"PMIX_QUERY_NUM_PSETS", "PMIX_QUERY_NAMESPACE_INFO", "PMIX_QUERY_MEMORY_USAGE"} {
		for how := range byte(4) {
			f.Add(append([]byte{11, how, byte(len(key)), 0x40 | how}, key...))
		}
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		h, jobs := asked()
		h.control = null
		var all []*asking
		for len(script) >= 4 {
			what, number, n, how := script[0]%12, uint32(script[1]), int(script[2]), script[3]
			text := string(script[4:min(len(script), 4+n)])
			script = script[4+len(text):]
			if number > 250 {
				number = pmix.Wildcard
			}
			space := []string{"a", "b", "none", text}[how%4]
			p, members := pmix.Proc{Space: space, Rank: number}, []pmix.Proc{{Space: "a", Rank: number}, {Space: space, Rank: 1}}[:how>>2%3]
			r := &asking{t: t, what: what}
			if what > 2 {
				all = append(all, r)
			}
			switch what {
			case 0:
				h.Connected(p)
			case 1:
				h.Finalized(p)
			case 2:
				h.Log(p, int(how), text, how&1 != 0)
			case 3:
				h.Abort(r, p, int(number), text)
			case 4:
				h.Group(r, pmix.Kind(how%5), text, members, how&8 != 0, []byte(text))
			case 5:
				h.Control(r, p, pmix.Control{Procs: members, Signal: int(how), End: how&1 != 0})
			case 6:
				h.Fence(r, pmix.Kind(how%5), members, []byte(text))
			case 7:
				h.Modex(r, p)
			case 8:
				h.Publish(r, p, []pmix.Pair{{Key: text, Value: []byte(text), Text: how&1 != 0}})
			case 9:
				h.Lookup(r, p, []string{text}, how&1 != 0, 0)
			case 10:
				h.Spawn(r, p, []pmix.App{{Argv: []string{text}, NP: int(number)}})
			case 11:
				h.Query(r, []pmix.Query{{Keys: []string{text, "PMIX_QUERY_PROC_TABLE"}, Namespace: space, Local: how&8 != 0}})
			}
			if how&0x40 != 0 {
				table := jobs
				if how&0x80 != 0 {
					table = []link.Job{{Name: space, Procs: make([]link.Process, number%4)}}
				}
				for range 2 { // the second is to nobody
					h.answered(link.Message{Kind: link.Answer, ID: h.last, Code: link.Code(how % 6), Jobs: table, Data: []byte(text), Status: int(number),
						Pairs: []link.Pair{{Key: text, Value: []byte(text)}}})
				}
			}
		}
		waits := 0
		for _, r := range all {
			if r.answers == 0 {
				waits++
			}
		}
		if waits != len(h.asked) {
			t.Errorf("%d upcalls wait for an answer, and the host is asked for %d", waits, len(h.asked))
		}
	})
}
