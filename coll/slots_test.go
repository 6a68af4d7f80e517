package coll

import "testing"

// Small teams have deep rings, and no team's control region exceeds its bound.
func TestSlots(t *testing.T) {
	for _, c := range []struct{ size, slots, eager int }{
		{1, 32, 8192}, {2, 32, 8192}, {4, 32, 8192}, {5, 16, 8192}, {8, 16, 8192}, {9, 8, 8192}, {15, 8, 8192},
		{16, 8, 4096}, {64, 8, 256}, {300, 8, 128},
	} {
		slots := slotsFor(c.size, defaultEager)
		eager := eagerFor(c.size, slots, defaultEager)
		if slots != c.slots || eager != c.eager {
			t.Errorf("%d members: %d slots of %d bytes, want %d of %d", c.size, slots, eager, c.slots, c.eager)
		}
		if l := newLayout(c.size, slots, eager, false); eager > leastEager && l.size() > regionFor(c.size) {
			t.Errorf("%d members: a control region of %d bytes, at most %d are expected", c.size, l.size(), regionFor(c.size))
		}
	}
	// Where the blocks are longer the rings stay as they were.
	if slots := slotsFor(4, 64<<10); slots != defaultSlots {
		t.Errorf("slots of 64 KiB: %d, want %d", slots, defaultSlots)
	}
}
