package rxe

import (
	"strings"
	"testing"
)

// The main job under another kernel: on the software device, on one of real
// verbs, and on two, of which each half of the ranks has one. Ranks move the data, and device threads.
func TestMainJob(t *testing.T) {
	for _, engine := range []string{"inline", "dpa"} {
		for _, devices := range []string{"", "rxe0", "rxe0,rxe1"} {
			t.Run(engine+" "+devices, func(t *testing.T) {
				args := []string{"gorun", "-np", "4", "a2a", "-m", "32", "-i", "50", "--engine", engine} // 1000 calls take the emulated CPUs a minute
				if devices != "" {
					args = append(args, "-d", devices)
				}
				out := inGuest(t, args...)
				if !strings.Contains(out, "on every rank") || !strings.Contains(out, "by engine "+engine) || devices != "" && !strings.Contains(out, "(verbs)") {
					t.Error(out)
				}
			})
		}
	}
}
