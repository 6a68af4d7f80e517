package host

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// Sample is what a rank uses: its process and those of its group.
type Sample struct {
	Rank int           `msgpack:"r"`
	CPU  time.Duration `msgpack:"c"` // since their start
	RSS  int64         `msgpack:"m"` // bytes that are resident
}

// tick is the unit of CPU times in /proc, on every machine Linux runs on
// (USER_HZ).
const tick = time.Second / 100

// sampleOnTime looks at the ranks when it is time to.
func (h *Host) sampleOnTime(now time.Time) {
	if h.sample.IsZero() || now.Before(h.sample) {
		return
	}
	h.sample = now.Add(h.spec.Sample)
	local := make(map[int]int) // by group
	for i, r := range h.up() {
		if !r.gone {
			local[r.pid] = i
		}
	}
	if len(local) == 0 {
		return
	}
	uses := make(map[int]Sample)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		h.log("%v", err)
		return
	}
	for _, e := range entries {
		if c := e.Name()[0]; c < '0' || c > '9' {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		group, cpu, pages, ok := parseStat(text)
		i, ours := local[group]
		if !ok || !ours {
			continue
		}
		s := uses[i]
		uses[i] = Sample{Rank: h.rankOf(i), CPU: s.CPU + cpu, RSS: s.RSS + pages*int64(os.Getpagesize())}
	}
	e := Event{Kind: Sampled}
	for i := range h.ranks {
		if s, ok := uses[i]; ok {
			e.Samples = append(e.Samples, s)
		}
	}
	h.emit(e)
}

// parseStat reads a line of /proc/PID/stat: process group, CPU time in user mode
// and in the kernel, resident pages. The name of the program, which may hold
// anything, ends with the last parenthesis.
func parseStat(text []byte) (group int, cpu time.Duration, pages int64, ok bool) {
	at := bytes.LastIndexByte(text, ')')
	if at < 0 {
		return 0, 0, 0, false
	}
	fields := bytes.Fields(text[at+1:]) // the first is field 3
	if len(fields) < 22 {
		return 0, 0, 0, false
	}
	var n [4]int64
	for i, field := range [...]int{5, 14, 15, 24} {
		var err error
		if n[i], err = strconv.ParseInt(string(fields[field-3]), 10, 64); err != nil {
			return 0, 0, 0, false
		}
	}
	return int(n[0]), time.Duration(n[1]+n[2]) * tick, n[3], true
}
