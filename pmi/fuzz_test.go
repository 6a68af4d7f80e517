package pmi

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gorun-mpi/gorun/internal/pack"
)

// FuzzInitAck reads the first line of any connection to PMI_PORT.
func FuzzInitAck(f *testing.F) {
	for _, line := range []string{"cmd=initack pmiid=3\n", "cmd=initack pmiid=-1\n", "cmd=init pmi_version=2 pmi_subversion=0\n", "GET / HTTP/1.1\r\n", "cmd=initack", "\n",
		"cmd=initack pmiid=99999999999999999999\n", "cmd=initack pmiid=1 pmiid=2\n", "    65cmd=fullinit;pmijobid=1;pmirank=0;"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		rank, err := InitAck(line)
		if (err == nil) != (rank >= 0) {
			t.Fatalf("%q: rank %d, %v", line, rank, err)
		}
		if err != nil {
			if text := err.Error(); !utf8.ValidString(text) || strings.Contains(text, "\n") || len(text) > 1000 {
				t.Errorf("%q: the error is %q", line, text)
			}
			return
		}
		if m, err := ParseLine(line); err != nil || m.Cmd() != "initack" {
			t.Errorf("%q is rank %d, and no initack: %v", line, rank, err)
		}
	})
}

// A server that says what was written down, in pieces, and then hangs up.
type dictated struct {
	rest  []byte
	piece int
}

func (d *dictated) Read(b []byte) (int, error) {
	if len(d.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), d.piece)], d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *dictated) Write(b []byte) (int, error)     { return len(b), nil }
func (d *dictated) SetDeadline(time.Time) error     { return nil }
func (d *dictated) SetReadDeadline(time.Time) error { return nil }
func (d *dictated) Close() error                    { return nil }

// FuzzClientAnswers has a server answer anything to a client: that of gorun, one of
// another launcher at a port, and one at a descriptor. Whatever it says, the calls
// end, and give what they may give.
func FuzzClientAnswers(f *testing.F) {
	const start = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\ncmd=my_kvsname kvsname=k\n"
	const identity = "cmd=initack\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n"
	cards := "cmd=gorun_allgather_result size=7\n\x92\xc4\x01a\xc4\x01b"
	f.Add([]byte(start+cards+"cmd=barrier_out\ncmd=get_result rc=0 value=v\ncmd=put_result rc=0\ncmd=finalize_ack\n"), byte(0), uint8(200))
	f.Add([]byte(identity+start+"cmd=put_result rc=0\ncmd=barrier_out\ncmd=get_result rc=0 value=1:61\ncmd=get_result rc=0 value=1:62\ncmd=barrier_out\n"), byte(1), uint8(3))
	f.Add([]byte(start+"cmd=put_result rc=0\ncmd=barrier_out\ncmd=get_result rc=0 value=1:61 found=TRUE\ncmd=get_result rc=-1 msg=key_not_found\n"), byte(2), uint8(1))
	f.Add([]byte(start+"cmd=put_result rc=0\ncmd=barrier_out\ncmd=get_result rc=0 value=2:6162\ncmd=get_result rc=0 value=63\ncmd=get_result rc=0 value=0:\n"), byte(2), uint8(255))
	f.Add([]byte("cmd=response_to_init pmi_version=1 rc=0\ncmd=maxes keylen_max=1 vallen_max=7\ncmd=my_kvsname kvsname="+strings.Repeat("k", 990)+"\n"), byte(2), uint8(255))
	f.Add([]byte(start+"cmd=gorun_allgather_result size=5\n\xdd\xff\xff\xff\xff"), byte(0), uint8(255))
	f.Fuzz(func(t *testing.T, says []byte, how, piece byte) {
		env := Env{Rank: 0, Size: 2, Cards: how%3 == 0}
		if how%3 == 1 {
			env.Port, env.ID = "host:1", "0"
		}
		c := &Client{conn: &dictated{says, int(piece) + 1}, name: "PMI_FD=3", rank: env.Rank, size: env.Size, ext: env.Cards, in: make([]byte, LineMax)}
		ctx := context.Background()
		if err := c.start(ctx, env); err != nil {
			judge(t, "start", err)
			return
		}
		if c.rank < 0 || c.rank >= c.size {
			t.Fatalf("it is rank %d of %d", c.rank, c.size)
		}
		all, err := c.AllGather(ctx, []byte("card"))
		judge(t, "all-gather", err)
		if err == nil && len(all) != c.size {
			t.Errorf("%d cards of %d ranks", len(all), c.size)
		}
		judge(t, "barrier", c.Barrier(ctx))
		value, err := c.Get("key")
		judge(t, "get", err)
		if strings.ContainsAny(value, "\n\x00") || err != nil && value != "" {
			t.Errorf("a value of %q, %v", value, err)
		}
		judge(t, "put", c.Put("key", "value"))
		judge(t, "finalize", c.Finalize())
		if c.KVSName(); c.Barrier(ctx) == nil {
			t.Error("a barrier after the end")
		}
	})
}

// judge fails the test for an error that none of the package's own wraps, or that
// would take a terminal's lines.
func judge(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, known := range []error{ErrNotFound, ErrServer, ErrRefused, ErrSyntax, ErrLine, ErrLimit, errClosed, pack.ErrDamaged} {
		if errors.Is(err, known) {
			return
		}
	}
	t.Errorf("%s: %v (%T)", what, err, err)
}

// FuzzSpawn has a rank say any block of a spawn. What comes out of it is whole.
func FuzzSpawn(f *testing.F) {
	for _, s := range []string{
		"nprocs=2\nexecname=./a\ntotspawns=1\nspawnssofar=1\narg1=-x\narg2=y z\nargcnt=2\npreput_num=1\npreput_key_0=k\npreput_val_0=v\ninfo_num=1\ninfo_key_0=host\ninfo_val_0=a\nendcmd\n",
		"nprocs=1\nexecname=a\ntotspawns=2\nspawnssofar=1\nargcnt=0\nendcmd\nmcmd=spawn\nnprocs=1\nexecname=b\ntotspawns=2\nspawnssofar=2\nendcmd\n",
		"nprocs=0\nendcmd\n", "nprocs=99999999999\nexecname=a\nendcmd\n", "nprocs=1\nexecname=a\ninfo_num=3\ninfo_key_0=a\nendcmd\n",
		"totspawns=65536\nspawnssofar=2\nendcmd\n", "=x\n", "execname\n", "preput_num=1\npreput_key_0=\npreput_val_0=\nnprocs=1\nexecname=a\nendcmd\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, block []byte) {
		e := NewEngine(EngineConfig{KVSName: "k", Size: 2, Ranks: []int{0, 1}})
		e.Receive(0, []byte("cmd=init pmi_version=1 pmi_subversion=1\nmcmd=spawn\n"))
		spawns, refused, violated := 0, 0, 0
		for _, ev := range e.Receive(0, block) {
			switch ev := ev.(type) {
			case Spawn:
				spawns++
				if len(ev.Apps) == 0 || len(ev.Apps) > spawnLinesMax {
					t.Fatalf("%d programs", len(ev.Apps))
				}
				for _, a := range ev.Apps {
					if a.Program == "" || a.N < 1 || a.N > 1<<20 {
						t.Errorf("program %+v", a)
					}
					for _, text := range append([]string{a.Program}, a.Args...) {
						if strings.ContainsAny(text, "\x00\n") || !strings.Contains(string(block), text) {
							t.Errorf("%q comes out of %q", text, block)
						}
					}
					for _, kv := range a.Info {
						if strings.ContainsAny(kv[0]+kv[1], "\x00\n") {
							t.Errorf("info %q", kv)
						}
					}
				}
				for k, v := range ev.Preset {
					if len(k) > KeyLenMax || len(v) > ValLenMax {
						t.Errorf("a pair of %d and %d bytes", len(k), len(v))
					}
				}
			case Reply:
				if m, err := ParseLine(ev.Data[:strings.IndexByte(string(ev.Data), '\n')+1]); err == nil && m.Cmd() == "spawn_result" {
					refused++
				}
			case Violation:
				violated++
			}
		}
		if spawns > 1 || violated > 1 {
			t.Errorf("%d spawns, %d refusals, %d violations of one rank that has got no answer", spawns, refused, violated)
		}
	})
}
