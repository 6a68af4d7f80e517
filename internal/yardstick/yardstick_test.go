package yardstick

import (
	"os"
	"testing"
)

func TestTake(t *testing.T) {
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	Take() // the runtime's own files are open now
	before := files()
	c := Take()
	if c.Call <= 0 || c.Fault <= 0 || c.Hand <= 0 || c.Fork <= 0 {
		t.Errorf("got %+v, want no zero but that of a line", c)
	}
	if got := files(); got != before {
		t.Errorf("%d files are open, %d before", got, before)
	}
	t.Logf("%+v", c)
}
