package main

import (
	"testing"
)

// A host and its DPU see one device at two addresses: they meet by its representor, and by a name alone.
func TestEndsMeetByRepresentorOrName(t *testing.T) {
	channel := func(emulate, name string, args ...string) string {
		t.Helper()
		parser, p := newParser(false)
		p.name = name
		err := parser.Parse(append(args, "-s", "1", "-n", "1"))
		if err == nil {
			err = p.findDevices(parser, []string{emulate})
		}
		if err != nil {
			t.Fatal(err)
		}
		return (&app{params: p}).channelName()
	}
	dpu := channel("0000:03:00.0", "", "-p", "0000:03:00:0", "-r", "0000:18:00:0")
	if host := channel("0000:0b:00.0", "", "-p", "0000:0b:00:0"); host != dpu {
		t.Errorf("the host's channel is %q and the DPU's %q, want one", host, dpu)
	}
	named := channel("0000:03:00.0", "x", "-p", "0000:03:00:0", "-r", "0000:18:00:0")
	if host := channel("soft7", "x", "-p", "soft7"); host != named || named == dpu {
		t.Errorf("of that name the host's channel is %q and the DPU's %q, want one that is not %q", host, named, dpu)
	}
	if other := channel("soft7", "y", "-p", "soft7"); other == named {
		t.Errorf("two names have one channel, %q", other)
	}
}
