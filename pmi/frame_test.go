package pmi

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParseFrame(t *testing.T) {
	cases := map[string]struct {
		body string
		want []Field
		err  error
	}{
		"one":                   {"cmd=job-getid;", []Field{{"cmd", "job-getid"}}, nil},
		"no end":                {"cmd=job-getid", []Field{{"cmd", "job-getid"}}, nil},
		"fields":                {"cmd=kvs-put;key=a b;value=c=d\n;", []Field{{"cmd", "kvs-put"}, {"key", "a b"}, {"value", "c=d\n"}}, nil},
		"doubled":               {"cmd=x;a=1;;2;b=;;;c=3;;;", []Field{{"cmd", "x"}, {"a", "1;2"}, {"b", ";"}, {"c", "3;"}}, nil},
		"doubled, then a pair":  {"cmd=x;a=;;b=c;", []Field{{"cmd", "x"}, {"a", ";b=c"}}, nil},
		"not doubled":           {"cmd=x;a=1;2;b=3;", []Field{{"cmd", "x"}, {"a", "1;2"}, {"b", "3"}}, nil},
		"empty value":           {"cmd=x;a=;b=;", []Field{{"cmd", "x"}, {"a", ""}, {"b", ""}}, nil},
		"no key":                {"cmd=x;=1;", []Field{{"cmd", "x;=1"}}, nil},
		"empty":                 {"", nil, ErrFrame},
		"no command":            {"key=k;cmd=x;", nil, ErrFrame},
		"empty command":         {"cmd=;key=k;", nil, ErrFrame},
		"a word":                {"hello;cmd=x;", nil, ErrFrame},
		"zero byte":             {"cmd=x;a=\x00;", nil, ErrFrame},
		"semicolons":            {";;;;", nil, ErrFrame},
		"longest":               {"cmd=x;a=" + strings.Repeat("v", FrameMax-9) + ";", []Field{{"cmd", "x"}, {"a", strings.Repeat("v", FrameMax-9)}}, nil},
		"too long":              {"cmd=x;a=" + strings.Repeat("v", FrameMax-8) + ";", nil, ErrLine},
		"half a doubled one":    {"cmd=x;a=1;;", []Field{{"cmd", "x"}, {"a", "1;"}}, nil},
		"an odd number of them": {"cmd=x;a=;;;;;b=1;", []Field{{"cmd", "x"}, {"a", ";;"}, {"b", "1"}}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := ParseFrame([]byte(c.body))
			if !errors.Is(err, c.err) || (c.err == nil && !reflect.DeepEqual(m.Fields, c.want)) {
				t.Errorf("ParseFrame(%q)\n got %q, %v\nwant %q, %v", clip(c.body), m.Fields, err, c.want, c.err)
			}
		})
	}
}

func TestFrameLength(t *testing.T) {
	for head, want := range map[string]int{"    38": 38, "38    ": 38, "000038": 38, "999999": 999999, "     1": 1} {
		if n, err := frameLength([]byte(head)); n != want || err != nil {
			t.Errorf("frameLength(%q) = %d, %v; want %d", head, n, err, want)
		}
	}
	for _, head := range []string{"      ", "     0", "-00001", "+00001", "3 8   ", "0x0010", "cmd=in", "1e5   "} {
		if n, err := frameLength([]byte(head)); !errors.Is(err, ErrFrame) {
			t.Errorf("frameLength(%q) = %d, %v; want an error", head, n, err)
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	for _, s := range []string{"cmd=fullinit;pmirank=0;threaded=FALSE;", "cmd=kvs-put;key=a;value=b;;c;", "cmd=x;a=1;2;b=3;", "cmd=x;a=;b=;;;", "cmd=job-getid",
		"cmd=spawn;ncmds=1;preputcount=1;ppkey0=k;ppval0=v;subcmd=a;maxprocs=2;argc=1;argv0=x;infokeycount=1;infokey0=k;infoval0=v;", ";;"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := ParseFrame(body)
		if err != nil {
			if !errors.Is(err, ErrFrame) && !errors.Is(err, ErrLine) {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		frame := m.AppendFrame(nil)
		n, err := frameLength(frame[:min(lengthDigits, len(frame))])
		if len(frame) > FrameMax+lengthDigits {
			return // with its semicolons doubled
		}
		if err != nil || n != len(frame)-lengthDigits {
			t.Fatalf("%q is written with the length %d, %v, want %d", body, n, err, len(frame)-lengthDigits)
		}
		if again, err := ParseFrame(frame[lengthDigits:]); err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("%q reads back as %q, %v; want %q", body, again.Fields, err, m.Fields)
		}
		apps, preset, why := spawnOf(m)
		for _, app := range apps {
			if app.N < 1 || app.Program == "" || why != "" {
				t.Errorf("%q: a spawn of %+v, refused with %q", body, app, why)
			}
		}
		for key, value := range preset {
			if len(key) > KeyLenMax || len(value) > ValLenMax || strings.ContainsAny(key+value, "\n\x00") {
				t.Errorf("%q: a spawn with the preset %q=%q", body, key, value)
			}
		}
	})
}

const (
	sayInit2 = "cmd=init pmi_version=2 pmi_subversion=0\n"
	sayFull2 = "    23cmd=fullinit;pmirank=3;"
)

func TestGreeting(t *testing.T) {
	for _, c := range []struct {
		name, said, answer string
		rank               int
	}{
		{"PMI-1", "cmd=initack pmiid=3\n", "", 3},
		{"PMI-2", sayInit2 + sayFull2, initAnswer2, 3},
		{"PMI-2 of Slurm", sayInit2 + "21    cmd=fullinit;srcid=3;", initAnswer2, 3},
		{"PMI-2 with more behind it", sayInit2 + sayFull2 + "    14cmd=job-getid;", initAnswer2, 3},
	} {
		// Cut after each byte, in two, and whole.
		for _, cut := range []int{1, len(c.said) / 2, len(c.said)} {
			var g Greeting
			rank, answers := -1, ""
			for at := 0; at < len(c.said) && rank < 0; at += cut {
				n, answer, err := g.Add([]byte(c.said[at:min(len(c.said), at+cut)]))
				if err != nil {
					t.Fatalf("%s, cut by %d: %v", c.name, cut, err)
				}
				rank, answers = n, answers+string(answer)
			}
			if rank != c.rank || answers != c.answer {
				t.Errorf("%s, cut by %d: rank %d and the answer %q, want %d and %q", c.name, cut, rank, answers, c.rank, c.answer)
			}
		}
	}
	for _, bad := range []string{"cmd=init pmi_version=1 pmi_subversion=1\n", "GET / HTTP/1.1\n", "cmd=initack pmiid=-1\n", sayInit2 + "GET / HTTP/1.1", sayInit2 + "    14cmd=job-getid;",
		sayInit2 + "    24cmd=fullinit;pmirank=-1;", strings.Repeat("a", GreetingMax+1), sayInit2 + "  9999" + strings.Repeat("a", GreetingMax)} {
		var g Greeting
		if rank, _, err := g.Add([]byte(bad)); err == nil {
			t.Errorf("Greeting.Add(%q): rank %d, want an error", clip(bad), rank)
		}
	}
	// Its rank is served from there on, and the first line is not answered again.
	var g Greeting
	if _, _, err := g.Add([]byte(sayInit2 + sayFull2 + "    14cmd=job-g")); err != nil {
		t.Fatal(err)
	}
	e := NewEngine(EngineConfig{KVSName: "job", Size: 4, Ranks: []int{3}, Spawner: "parent"})
	got := string(replies(e.Seat(3, &g))) + string(replies(e.Receive(3, []byte("etid;"))))
	if !strings.Contains(got, "cmd=fullinit-response;") || !strings.Contains(got, ";spawner-jobid=parent;") || !strings.Contains(got, "cmd=job-getid-response;jobid=job;") || strings.Contains(got, "response_to_init") {
		t.Errorf("the rank is told %q", got)
	}
}

// replies is what ranks are told by events.
func replies(events []Event) (data []byte) {
	for _, ev := range events {
		if r, ok := ev.(Reply); ok {
			data = append(data, r.Data...)
		}
	}
	return data
}

func FuzzGreeting(f *testing.F) {
	f.Add([]byte("cmd=initack pmiid=3\n"), uint8(3))
	f.Add([]byte(sayInit2+sayFull2), uint8(7))
	f.Add([]byte(sayInit2+"  9999cmd=fullinit;"), uint8(200))
	f.Fuzz(func(t *testing.T, said []byte, cut uint8) {
		var g Greeting
		answers := 0
		for at := 0; at < len(said) && at < GreetingMax; {
			n := min(int(cut)+1, len(said)-at)
			rank, answer, err := g.Add(said[at : at+n])
			if at += n; len(answer) > 0 {
				answers++
			}
			if answers > 1 || err != nil && rank >= 0 {
				t.Fatalf("%q: %d answers, rank %d, %v", said[:at], answers, rank, err)
			}
			if err != nil {
				return
			}
			if rank >= 0 {
				e := NewEngine(EngineConfig{Size: 1, Ranks: []int{0}})
				for _, ev := range e.Seat(0, &g) {
					if v, ok := ev.(Violation); ok && rank == 0 && at == len(said) && answers == 0 {
						t.Fatalf("%q is rank 0, and then %v", said, v.Err)
					}
				}
				return
			}
		}
	})
}

// A rank of PMI-2 is bounded as one of PMI-1 is.
func TestLimits2(t *testing.T) {
	e := NewEngine(EngineConfig{KVSName: "job", Size: 2, Ranks: []int{0, 1}})
	for r := range 2 {
		e.Receive(r, fmt.Appendf([]byte(sayInit2), "    23cmd=fullinit;pmirank=%d;", r))
	}
	for command, want := range map[string]string{
		"cmd=kvs-put;key=" + strings.Repeat("k", KeyLenMax) + ";value=" + strings.Repeat("v", ValLenMax) + ";":   "rc=0;",
		"cmd=kvs-put;key=" + strings.Repeat("k", KeyLenMax+1) + ";value=v;":                                      "has 65 bytes, the limit is 64;",
		"cmd=kvs-put;key=big;value=" + strings.Repeat("v", ValLenMax+1) + ";":                                    "the value of key big has 1025 bytes, the limit is 1024;",
		"cmd=kvs-put;key=two;value=l\nines;":                                                                     "a newline in key two or its value;",
		"cmd=info-putnodeattr;key=big;value=" + strings.Repeat("v", ValLenMax+1) + ";":                           "key big has 3 bytes and its value 1025, the limits are 64 and 1024;",
		"cmd=name-publish;name=n;port=" + strings.Repeat("p", ValLenMax) + ";":                                   "name and port have 1025 bytes, the limit is 1024;",
		"cmd=name-publish;name=n;port=a\nb;":                                                                     "a newline in a name or a port;",
		"cmd=spawn;ncmds=1;preputcount=1;ppkey0=k;ppval0=" + strings.Repeat("v", 1025) + ";subcmd=a;maxprocs=1;": "a value of 1024",
	} {
		got := string(replies(e.Receive(0, framed(command))))
		if !strings.Contains(got, want) {
			t.Errorf("%s is answered with %q, want %q", clip(command), got, want)
		}
	}
	e.Receive(0, framed("cmd=kvs-fence;"))
	var v *RankError
	for i := 0; v == nil; i++ {
		if i > waitersMax {
			t.Fatalf("a rank may have %d commands wait", i)
		}
		for _, ev := range e.Receive(0, framed("cmd=kvs-fence;thrid=1;")) {
			if bad, ok := ev.(Violation); ok {
				v = bad.Err.(*RankError)
			}
		}
	}
	if v.Kind != ErrLimit || e.peers[0].later != nil {
		t.Errorf("too many that wait: %v, and %d are kept", v, len(e.peers[0].later))
	}
	for i := 0; ; i++ {
		if i > waitersMax {
			t.Fatalf("a rank may wait for %d attributes", i)
		}
		if v := firstViolation(e.Receive(1, framed("cmd=info-getnodeattr;thrid=1;key=never;wait=TRUE;"))); v != nil {
			if v.Kind != ErrLimit || len(e.attributes.waits) != 0 {
				t.Errorf("too many attributes: %v, and %d are kept", v, len(e.attributes.waits))
			}
			break
		}
	}
}

// firstViolation is the first violation among events, if there is one.
func firstViolation(events []Event) *RankError {
	for _, ev := range events {
		if v, ok := ev.(Violation); ok {
			return v.Err.(*RankError)
		}
	}
	return nil
}

func TestFarewell(t *testing.T) {
	for in, want := range map[string]string{
		"cmd=finalize\n": "cmd=finalize_ack\n", "cmd=finalize": "", "cmd=barrier_in\n": "", "": "", "cmd=finalize\ncmd=finalize\n": "",
		"    13cmd=finalize;": "    28cmd=finalize-response;rc=0;", "    21cmd=finalize;thrid=7;": "    36cmd=finalize-response;thrid=7;rc=0;",
		"    13cmd=finaliz_;": "", "    12cmd=finalize;": "", "    13cmd=": "", "xx": "",
	} {
		got := Farewell([]byte(in))
		if want == "" && got != nil || want != "" && strings.TrimLeft(string(got), " 0123456789") != strings.TrimLeft(want, " 0123456789") {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
