package wireup

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

// FuzzParseGreeting reads the greeting of any rank.
func FuzzParseGreeting(f *testing.F) {
	for _, g := range []Greeting{{Host: "a", Machine: "boot ns 0", Kernel: "boot", CPUs: "0-3", Limit: "group", PID: 7, Secret: make([]byte, 32), Nets: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}}, {}, {PID: 1<<31 - 1}} {
		f.Add(g.Pack())
	}
	f.Add([]byte{0x95, 1, 0xdb, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte("cmd=init"))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := ParseGreeting(b)
		if err != nil {
			if !reflect.DeepEqual(g, Greeting{}) {
				t.Errorf("%x: %+v beside %v", b, g, err)
			}
			return
		}
		if g.PID < 0 || len(g.Host)+len(g.Machine)+len(g.Secret) > len(b) {
			t.Errorf("%x reads as %+v", b, g)
		}
		again, err := ParseGreeting(g.Pack())
		if err != nil || again.Host != g.Host || again.Machine != g.Machine || again.Kernel != g.Kernel || again.CPUs != g.CPUs || again.Limit != g.Limit || again.PID != g.PID || again.Network != g.Network || !slices.Equal(again.Nets, g.Nets) || string(again.Secret) != string(g.Secret) {
			t.Errorf("%+v reads back as %+v, %v", g, again, err)
		}
	})
}
