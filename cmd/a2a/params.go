package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/internal/version"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma/dpa"
)

// intSize is the size of the elements: the matrices hold int32.
const intSize = 4

// How much of the matrices is printed.
const (
	printFull = "full"
	printHead = "head"
	printNone = "none"
)

// fullLimit is the number of bytes a rank up to which matrices are printed in
// full when --print does not say.
const fullLimit = 64 << 10

// params is what the command line says.
type params struct {
	op         string // the collective
	msgsize    int    // bytes of one rank's send buffer
	deviceList string // as given: "a" or "a,b"
	engine     string // that runs the calls
	threads    int    // of the engine, a rank; 0: it has none of its own
	iterations int    // calls to time
	warmup     int    // calls before them
	strict     bool
	print      string
	seed       int64
}

// newParser declares the flags. ranks is the size of the world; the defaults
// that depend on it are in the params at once.
func newParser(ranks int) (*doca.Parser, *params) {
	p := &params{op: allToAll.String(), msgsize: ranks * intSize, engine: engineInline, iterations: -1, warmup: -1, seed: 1}
	parser := doca.New("a2a", "Runs an all-to-all exchange by RDMA writes: block k of rank i lands in block i of rank k.\n"+
		"With --op it runs a broadcast, an all-reduce or a reduce-scatter of the same matrices.\n"+
		"Start it with gorun -np N; without a launcher it runs as one rank.", version.Line("a2a"))
	parser.String(&p.op, doca.Flag{Long: "op", Value: strings.Join(operations, "|"), Check: doca.OneOf(&p.op, operations...),
		Help: "the collective: every rank sends a block to each, rank 0 sends its buffer to all, all get the sum of the buffers, or rank k gets the sum of all blocks k (default alltoall)"})
	parser.Int(&p.msgsize, doca.Flag{Long: "msgsize", Short: 'm', Value: "BYTES", Check: func() error { return p.checkSize(ranks) },
		Help: "size of one rank's send buffer in bytes, a multiple of 4, at least 4 per rank where it is shared out to them (default: 4 per rank)"})
	parser.String(&p.deviceList, doca.Flag{Long: "devices", Short: 'd', Value: "NAME[,NAME]", Check: p.checkDevices,
		Help: "RDMA device to use; with two names, the lower half of the ranks uses the first (default: the first software device)"})
	parser.String(&p.engine, doca.Flag{Long: "engine", Value: strings.Join(engines, "|"), Check: doca.OneOf(&p.engine, engines...),
		Help: "what runs the exchange: the rank itself in its call, its progress thread, device threads, as on a DPA, or the host's daemon (gorun --offload), which gorun starts if there is none (default inline)"})
	parser.Int(&p.threads, doca.Flag{Long: "threads", Value: "N", Check: func() error { return p.checkThreads(ranks) },
		Help: fmt.Sprintf("number of device threads of a rank, with --engine dpa and alltoall; other collectives have one (default: one for each rank of the job, %d at most, and no more than there are CPUs for the ranks)", threadsMost)})
	parser.Int(&p.iterations, doca.Flag{Long: "iterations", Short: 'i', Value: "N", Check: doca.AtLeast(&p.iterations, 0),
		Help: "number of calls to time after the first one (default: 1000, fewer for large messages)"})
	parser.Int(&p.warmup, doca.Flag{Long: "warmup", Short: 'w', Value: "N", Check: doca.AtLeast(&p.warmup, 0),
		Help: "number of warm-up calls, between the first and the timed ones (default: a tenth of -i)"})
	parser.Bool(&p.strict, doca.Flag{Long: "strict", Help: "fail, instead of warning, when the ranks cannot divide the size evenly"})
	parser.String(&p.print, doca.Flag{Long: "print", Value: "full|head|none", Check: doca.OneOf(&p.print, printFull, printHead, printNone),
		Help: "print the matrices in full, only their first and last 8 columns, or not at all (default: full up to 64 KiB per rank, else head)"})
	parser.Results()
	parser.Int64(&p.seed, doca.Flag{Long: "seed", Value: "N", Help: "seed of the matrices' random numbers (default 1)"})
	return parser, p
}

// checkSize holds -m against the number of ranks.
func (p *params) checkSize(ranks int) error {
	least := p.operation().blocks(ranks) * intSize
	switch {
	case p.msgsize%intSize != 0:
		return fmt.Errorf("found %d, expected a multiple of %d bytes, the size of an integer; the minimum for %d ranks is %d", p.msgsize, intSize, ranks, least)
	case p.msgsize < least && least == intSize:
		return fmt.Errorf("found %d, expected at least %d bytes, the size of an integer", p.msgsize, least)
	case p.msgsize < least:
		return fmt.Errorf("found %d, expected at least %d bytes, %d for each of %d ranks", p.msgsize, least, intSize, ranks)
	case p.strict && p.unused(ranks) > 0:
		return fmt.Errorf("found %d, which leaves %d integers over when %d ranks share it, expected a multiple of %d (or no --strict)",
			p.msgsize, p.unused(ranks), ranks, least)
	case int64(p.msgsize) > maxSize:
		return fmt.Errorf("found %d, expected at most %d bytes", p.msgsize, maxSize)
	}
	return nil
}

// maxSize is the longest buffer: the integers are counted with 32 bits in the
// original, and no machine holds more for several ranks.
const maxSize = 1 << 40

// ints is the number of integers in a buffer, perPeer in a block of it, unused
// those at its end that are never sent.
func (p *params) ints() int             { return p.msgsize / intSize }
func (p *params) perPeer(ranks int) int { return p.ints() / p.operation().blocks(ranks) }
func (p *params) unused(ranks int) int  { return p.ints() % p.operation().blocks(ranks) }

// devices are the devices named, none for the default.
func (p *params) devices() []string {
	if p.deviceList == "" {
		return nil
	}
	return strings.Split(p.deviceList, ",")
}

func (p *params) checkDevices() error {
	names := strings.Split(p.deviceList, ",")
	switch {
	case len(names) > 2:
		return fmt.Errorf("found %d devices in %q, expected one or two", len(names), p.deviceList)
	case slices.ContainsFunc(names, func(n string) bool { return n == "" || strings.ContainsAny(n, " \t") }):
		return fmt.Errorf("found %q, expected NAME or NAME,NAME without blanks", p.deviceList)
	case len(names) == 2 && names[0] == names[1]:
		return fmt.Errorf("found %q, expected two different devices, or the name once: all ranks use it then", p.deviceList)
	}
	return nil
}

// What --engine names.
const (
	engineInline = "inline"
	engineThread = "thread"
	engineDPA    = "dpa"
	engineDaemon = "daemon"
)

var engines = []string{engineInline, engineThread, engineDPA, engineDaemon}

// threadsMost is the default's limit, that of the original.
const threadsMost = 8

// configure has the ranks be what the engine needs. Its daemon reaches memory that is mapped.
func (p *params) configure(cfg *rank.Config) {
	cfg.Verbs, cfg.OffloadFrom = p.engine != engineDaemon, 1
	cfg.Offload = p.engine == engineDaemon
	switch {
	case p.engine == engineThread:
		cfg.Progress, cfg.Deferred = rank.ProgressOn, true
	case p.engine == engineDPA && p.operation() != allToAll:
		cfg.Progress, cfg.Deferred = rank.ProgressOff, true
	}
}

// checkThreads comes after the checks of the engine and the operation.
func (p *params) checkThreads(ranks int) error {
	most := min(ranks, dpa.MaxThreads)
	switch {
	case p.engine != engineDPA:
		return fmt.Errorf("found %d threads for --engine %s, expected --engine %s, whose threads they are", p.threads, p.engine, engineDPA)
	case p.operation() != allToAll && p.threads != 1:
		return fmt.Errorf("found %d threads for --op %s, expected 1, which runs the whole collective", p.threads, p.op)
	case p.threads < 1 || p.threads > most:
		return fmt.Errorf("found %d, expected 1 to %d: each thread serves at least one of %d ranks", p.threads, most, ranks)
	}
	return nil
}

// settle fills in the defaults that depend on other values, among them the CPUs that there are for each rank.
func (p *params) settle(ranks, cpus int) {
	if p.print == "" {
		p.print = printFull
		if p.msgsize > fullLimit {
			p.print = printHead
		}
	}
	if p.engine == engineDPA && p.threads == 0 {
		p.threads = 1
		if p.operation() == allToAll {
			p.threads = max(1, min(ranks, threadsMost, cpus))
		}
	}
	if p.iterations < 0 {
		// 64 MiB of traffic, but 1000 calls at most and 10 at least.
		p.iterations = min(max(10, 64<<20/(p.msgsize*ranks)), 1000)
	}
	if p.warmup < 0 {
		p.warmup = min(p.iterations, max(1, p.iterations/10))
	}
}

// words is the params as numbers, for the broadcast; the texts go apart.
func (p *params) words() []int64 {
	strict := int64(0)
	if p.strict {
		strict = 1
	}
	return []int64{int64(p.msgsize), int64(p.iterations), int64(p.warmup), strict, p.seed,
		int64(p.threads), int64(len(p.deviceList)), int64(len(p.print)), int64(len(p.engine)), int64(len(p.op))}
}

// texts are the params' strings, one after the other.
func (p *params) texts() string { return p.deviceList + p.print + p.engine + p.op }

// textLen is the length of the texts that belong to words.
func (p *params) textLen(words []int64) int64 { return words[6] + words[7] + words[8] + words[9] }

// adopt takes over what words and texts gave.
func (p *params) adopt(words []int64, texts string) {
	p.msgsize, p.iterations, p.warmup = int(words[0]), int(words[1]), int(words[2])
	p.strict, p.seed, p.threads = words[3] != 0, words[4], int(words[5])
	for i, text := range []*string{&p.deviceList, &p.print, &p.engine, &p.op} {
		n := words[6+i]
		*text, texts = texts[:n], texts[n:]
	}
}
