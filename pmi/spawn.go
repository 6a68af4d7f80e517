package pmi

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of a spawn, beyond which a rank's service ends.
const (
	spawnLinesMax = 1 << 16 // lines of all its blocks
	spawnBytesMax = 4 << 20 // and their bytes
)

// codesMax bounds the line of a spawn's answer: MPICH's client reads it into a
// buffer of 1024 bytes.
const codesMax = 1000

// reasonMax bounds why a spawn was refused.
const reasonMax = 500

// SpawnApp is one program of a spawn.
type SpawnApp struct {
	Program string
	Args    []string    // without the program's name
	N       int         // number of processes, at least 1
	Info    [][2]string // MPI's hints, as keys and values in the given order
}

// SpawnAnswer is the result of a Spawn.
type SpawnAnswer struct {
	// Err is the reason that no process was started; "": they were started.
	Err string
	// Job is the name of the new job's key-value space; "": unknown.
	Job string
	// Codes has an error code per process, 0 for one that runs; nil: all run.
	Codes []int
}

// spawning is a spawn of which blocks are still to come:
//
//	mcmd=spawn
//	nprocs=N
//	execname=PROGRAM
//	totspawns=BLOCKS
//	spawnssofar=1, 2, ...
//	arg1=... arg2=...         one a line, as all that follows
//	argcnt=N
//	preput_num=N, preput_key_0=K, preput_val_0=V, ...
//	info_num=N, info_key_0=K, info_val_0=V, ...
//	endcmd
//
// A value is the rest of its line, so it may hold anything but a newline. The
// pairs to put are those of the first block, as with Hydra.
type spawning struct {
	open   bool // in a block
	lines  int
	bytes  int
	block  map[string]string // of the open block
	blocks int               // that have ended
	apps   []SpawnApp
	preset map[string]string
	bad    string // why it cannot be; the rest is read all the same
}

// beginBlock serves mcmd=spawn.
func (e *Engine) beginBlock(p *peer) {
	if p.spawn == nil {
		p.spawn = new(spawning)
	}
	p.spawn.open, p.spawn.block = true, make(map[string]string)
}

// receiveBlock takes a line of a block.
func (e *Engine) receiveBlock(p *peer, line []byte) {
	s := p.spawn
	line = bytes.TrimSuffix(line, []byte("\n"))
	s.lines++
	s.bytes += len(line)
	switch key, value, ok := strings.Cut(string(line), "="); {
	case s.lines > spawnLinesMax:
		e.violate(p, ErrLimit, fmt.Sprintf("mcmd=spawn has more than %d lines", spawnLinesMax))
	case s.bytes > spawnBytesMax:
		e.violate(p, ErrLimit, fmt.Sprintf("mcmd=spawn has more than %d bytes", spawnBytesMax))
	case bytes.IndexByte(line, 0) >= 0:
		e.violate(p, ErrSyntax, fmt.Sprintf("%q in mcmd=spawn", clip(string(line))))
	case string(line) == "endcmd":
		e.endBlock(p)
	case !ok || key == "":
		e.violate(p, ErrSyntax, fmt.Sprintf("%q in mcmd=spawn, want key=value or endcmd", clip(string(line))))
	default:
		s.block[key] = value
	}
}

// endBlock closes a block, and passes the spawn on with the last one.
func (e *Engine) endBlock(p *peer) {
	s := p.spawn
	s.open = false
	s.blocks++
	total := s.number("totspawns", 1, spawnLinesMax)
	if so := s.number("spawnssofar", 1, spawnLinesMax); so != s.blocks && s.bad == "" {
		s.bad = fmt.Sprintf("block %d says spawnssofar=%d", s.blocks, so)
	}
	s.take()
	s.block = nil
	if s.blocks < total {
		return
	}
	p.spawn = nil
	if s.bad != "" {
		e.answerSpawn(SpawnAnswer{Err: s.bad})
		return
	}
	e.emit(p, Spawn{Rank: p.rank, Apps: s.apps, Preset: s.preset})
	p.state = asking
}

// number is a number of the block, least if it is not there.
func (s *spawning) number(key string, least, most int) int {
	v, ok := s.block[key]
	if !ok {
		return least
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		s.fail("%s=%s, want a number of %d to %d", key, v, least, most)
		return least
	}
	return n
}

// text is a value that must be there.
func (s *spawning) text(format string, n int) string {
	key := fmt.Sprintf(format, n)
	v, ok := s.block[key]
	if !ok {
		s.fail("no %s", key)
	}
	return v
}

func (s *spawning) fail(format string, args ...any) {
	if s.bad == "" {
		s.bad = fmt.Sprintf(format, args...)
	}
}

// take makes a program of the block.
func (s *spawning) take() {
	app := SpawnApp{Program: s.block["execname"], N: s.number("nprocs", 0, 1<<20)}
	switch {
	case app.Program == "":
		s.fail("no execname")
	case app.N == 0:
		s.fail("no nprocs, or nprocs=0")
	}
	// A count beyond the lines that came would only make the misses many.
	for i := range s.number("argcnt", 0, len(s.block)) {
		app.Args = append(app.Args, s.text("arg%d", i+1))
	}
	for i := range s.number("info_num", 0, len(s.block)) {
		app.Info = append(app.Info, [2]string{s.text("info_key_%d", i), s.text("info_val_%d", i)})
	}
	s.apps = append(s.apps, app)
	if s.blocks > 1 {
		return
	}
	preset := make(map[string]string)
	for i := range s.number("preput_num", 0, len(s.block)) {
		key, value := s.text("preput_key_%d", i), s.text("preput_val_%d", i)
		if len(key) > KeyLenMax || len(value) > ValLenMax {
			s.fail("preput_key_%d has %d bytes and its value %d, the limits are %d and %d", i, len(key), len(value), KeyLenMax, ValLenMax)
		}
		preset[key] = value
	}
	s.preset = preset
}

// SpawnDone answers the [Spawn] of a rank.
func (e *Engine) SpawnDone(rank int, a SpawnAnswer) []Event {
	p := e.peer(rank)
	if p.state != asking {
		return nil // it has gone
	}
	p.state = up
	p.wire.spawned(e, p, a)
	p.wire.freed(e, p)
	return e.take(p)
}

func (e *Engine) answerSpawn(a SpawnAnswer) {
	if a.Err != "" {
		e.reply("cmd=spawn_result rc=-1 msg=", underscores(clipTo(a.Err, reasonMax)))
		return
	}
	codes := ""
	if len(a.Codes) > 0 {
		list := make([]string, len(a.Codes))
		for i, c := range a.Codes {
			list[i] = strconv.Itoa(c)
		}
		if codes = " errcodes=" + strings.Join(list, ","); len(codes) > codesMax {
			// Without codes MPICH's client takes all to run.
			e.reply("cmd=spawn_result rc=-1 msg=some_of_", strconv.Itoa(len(list)), "_processes_do_not_run")
			return
		}
	}
	e.reply("cmd=spawn_result rc=0", codes)
}
