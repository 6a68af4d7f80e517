package agent

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gorun-mpi/gorun/internal/reach"
)

func TestGreetingIsFoundBehindWhatLoginScriptsWrite(t *testing.T) {
	for _, before := range []string{"", "Welcome\nto h2\n", "no newline ", "a NUL \x00gorun-agen\n"} {
		for name, r := range map[string]io.Reader{
			"at once":      strings.NewReader(before + string(greeting(streamVersion)) + "frames"),
			"byte by byte": iotest.OneByteReader(strings.NewReader(before + string(greeting(streamVersion)) + "frames")),
		} {
			in, stray := bufio.NewReader(r), ""
			pid, err := readGreeting(in, streamVersion, func(s string) { stray = s }, none)
			rest, _ := io.ReadAll(in)
			if err != nil || pid != os.Getpid() || stray != before || string(rest) != "frames" {
				t.Errorf("%q, %s: got pid %d, %v, before it %q, behind it %q", before, name, pid, err, stray, rest)
			}
		}
	}
}

func TestGreetingsThatAreNone(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "EOF"},
		{"Password: ", `found "Password:", expected the greeting`},
		{"\x00gorun-agent 0.0.1 1 5\n", "found an agent of gorun 0.0.1"},
		{"\x00gorun-agent 1\n", "expected VERSION STREAM PID"},
		{strings.Replace(string(greeting(streamVersion)), "\n", "x\n", 1), "expected a number"},
		{strings.Repeat("chatter\n", strayMost/4), "no greeting of an agent within"},
		{"\x00gorun-agent " + strings.Repeat("y", greetingMost), "expected the line of an agent's greeting within"},
		{"\x00gorun-stage " + strings.Repeat("y", strayMost), "no greeting of an agent within"},
	} {
		if _, err := readGreeting(bufio.NewReader(strings.NewReader(c.text)), streamVersion, func(string) {}, none); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: got %v, want %q", c.text, err, c.want)
		}
	}
}

// none is for a stream in which nobody asks for a program.
func none(string) {}

func FuzzReadGreeting(f *testing.F) {
	f.Add("Welcome\n" + string(greeting(streamVersion)) + "x")
	f.Add("\x00gorun-agent \n")
	f.Fuzz(func(t *testing.T, text string) {
		stray := ""
		pid, err := readGreeting(bufio.NewReader(iotest.HalfReader(strings.NewReader(text))), streamVersion, func(s string) { stray = s }, none)
		if (err == nil) != (pid > 0) || !strings.HasPrefix(text, stray) {
			t.Errorf("pid %d, %v, before it %q", pid, err, stray)
		}
	})
}

func TestAddressOfAHost(t *testing.T) {
	all, err := reach.Here()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		way             Way
		session         string
		want, why, fail string
	}{
		{way: Way{}, session: "10.0.0.1 5 10.0.0.2 22", want: "127.0.0.1", why: "this machine"},
		{way: Way{Apart: true, Remote: true}, session: "10.0.0.1 5 10.0.0.2 22", want: "10.0.0.2", why: "ssh has come"},
		{way: Way{Apart: true, Remote: true}, session: "2001:db8::1 5 2001:db8::2 22", want: "2001:db8::2", why: "ssh has come"},
		{way: Way{Apart: true, Interface: "lo", Remote: true}, session: "10.0.0.1 5 10.0.0.2 22", want: "127.0.0.1", why: "--interface lo"},
		{way: Way{Apart: true, Interface: "127.0.0.0/8"}, want: "127.0.0.1", why: "--interface 127.0.0.0/8"},
		{way: Way{Apart: true, Interface: "no-such"}, fail: "found lo 127.0.0.1/8"},
		{way: Way{Apart: true, Interface: "203.0.113.0/24"}, fail: "in that network; found lo"},
		{way: Way{Apart: true}, want: first(all), why: "the first of the interfaces", fail: noneIf(first(all) == "", "expected --interface")},
	} {
		a, why, err := c.way.Address(c.session)
		if c.fail != "" {
			if err == nil || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%+v: got %v, %v, want %q (of %v)", c.way, a, err, c.fail, all)
			}
			continue
		}
		if err != nil || a.String() != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%+v, %q: got %v, %q, %v, want %s, %q", c.way, c.session, a, why, err, c.want, c.why)
		}
	}
}

// first is the address that a host takes of which nothing is known; "": it has none.
func first(all []reach.Address) string {
	if a, err := reach.First(all, ""); err == nil {
		return a.Prefix.Addr().String()
	}
	return ""
}

func noneIf(cond bool, text string) string {
	if cond {
		return text
	}
	return ""
}
