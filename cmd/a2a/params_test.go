package main

import (
	"cmp"
	"strings"
	"testing"
)

func TestParams(t *testing.T) {
	for _, c := range []struct {
		name, args string // "+" stands for a blank inside an argument
		ranks      int
		cpus       int
		want       params // settled
		err        string
	}{
		{name: "defaults", ranks: 4, want: params{op: "alltoall", engine: "inline", msgsize: 16, iterations: 1000, warmup: 100, print: "full", seed: 1}},
		{name: "one rank", ranks: 1, want: params{op: "alltoall", engine: "inline", msgsize: 4, iterations: 1000, warmup: 100, print: "full", seed: 1}},
		{name: "all", ranks: 4, args: "-m 32 -d a,b -i 7 -w 3 --strict --print head --output-json - --seed 9",
			want: params{op: "alltoall", engine: "inline", msgsize: 32, deviceList: "a,b", iterations: 7, warmup: 3, strict: true, print: "head", seed: 9}},
		{name: "large", ranks: 4, args: "-m 4194304", want: params{op: "alltoall", engine: "inline", msgsize: 4 << 20, iterations: 10, warmup: 1, print: "head", seed: 1}},
		{name: "at the limit of full", ranks: 4, args: "-m 65536 -i 0", want: params{op: "alltoall", engine: "inline", msgsize: 64 << 10, iterations: 0, warmup: 0, print: "full", seed: 1}},
		{name: "over the limit of full", ranks: 4, args: "-m 65552 -i 1", want: params{op: "alltoall", engine: "inline", msgsize: 65552, iterations: 1, warmup: 1, print: "head", seed: 1}},
		{name: "left over", ranks: 4, args: "-m 36 -i 1 -w 0", want: params{op: "alltoall", engine: "inline", msgsize: 36, iterations: 1, warmup: 0, print: "full", seed: 1}},
		{name: "not a multiple", ranks: 4, args: "-m 7", err: "-m: found 7, expected a multiple of 4 bytes, the size of an integer; the minimum for 4 ranks is 16"},
		{name: "too small", ranks: 4, args: "-m 4", err: "-m: found 4, expected at least 16 bytes, 4 for each of 4 ranks"},
		{name: "nothing", ranks: 4, args: "-m 0", err: "-m: found 0, expected at least 16 bytes"},
		{name: "negative", ranks: 4, args: "-m -8", err: "-m: found -8, expected at least 16 bytes"},
		{name: "far too large", ranks: 4, args: "-m 1152921504606846976", err: "-m: found 1152921504606846976, expected at most"},
		{name: "strict", ranks: 4, args: "--strict -m 36", err: "-m: found 36, which leaves 1 integers over when 4 ranks share it, expected a multiple of 16"},
		{name: "three devices", ranks: 4, args: "-d a,b,c", err: `-d: found 3 devices in "a,b,c", expected one or two`},
		{name: "device with blank", ranks: 4, args: "-d a,+b", err: `-d: found "a, b", expected NAME or NAME,NAME without blanks`},
		{name: "one device twice", ranks: 4, args: "-d x,x", err: `-d: found "x,x", expected two different devices`},
		{name: "dpa", ranks: 4, args: "--engine dpa", want: params{op: "alltoall", engine: "dpa", threads: 4, msgsize: 16, iterations: 1000, warmup: 100, print: "full", seed: 1}},
		{name: "dpa on many ranks", ranks: 16, args: "--engine dpa", want: params{op: "alltoall", engine: "dpa", threads: 8, msgsize: 64, iterations: 1000, warmup: 100, print: "full", seed: 1}},
		{name: "dpa on few CPUs", ranks: 16, cpus: 2, args: "--engine dpa", want: params{op: "alltoall", engine: "dpa", threads: 2, msgsize: 64, iterations: 1000, warmup: 100, print: "full", seed: 1}},
		{name: "dpa on less than a CPU each", ranks: 16, cpus: -1, args: "--engine dpa", want: params{op: "alltoall", engine: "dpa", threads: 1, msgsize: 64, iterations: 1000, warmup: 100, print: "full", seed: 1}},
		{name: "threads", ranks: 16, args: "--engine dpa --threads 16", want: params{op: "alltoall", engine: "dpa", threads: 16, msgsize: 64, iterations: 1000, warmup: 100, print: "full", seed: 1}},
		{name: "broadcast", ranks: 4, args: "--op bcast -m 36 --strict", want: params{op: "bcast", engine: "inline", msgsize: 36, iterations: 1000, warmup: 100, strict: true, print: "full", seed: 1}},
		{name: "one integer", ranks: 4, args: "-m 4 --op allreduce", want: params{op: "allreduce", engine: "inline", msgsize: 4, iterations: 1000, warmup: 100, print: "full", seed: 1}},
		{name: "dpa with another operation", ranks: 4, args: "--op reduce_scatter --engine dpa", want: params{op: "reduce_scatter", engine: "dpa", threads: 1, msgsize: 16, iterations: 1000, warmup: 100, print: "full", seed: 1}},
		{name: "operation", ranks: 4, args: "--op gather -m 4", err: `--op: found "gather", expected alltoall, bcast, allreduce or reduce_scatter`},
		{name: "no integer", ranks: 4, args: "--op allreduce -m 0", err: "-m: found 0, expected at least 4 bytes, the size of an integer"},
		{name: "broadcast, not a multiple", ranks: 4, args: "--op bcast -m 7", err: "-m: found 7, expected a multiple of 4 bytes, the size of an integer; the minimum for 4 ranks is 4"},
		{name: "reduce-scatter, too small", ranks: 4, args: "--op reduce_scatter -m 12", err: "-m: found 12, expected at least 16 bytes, 4 for each of 4 ranks"},
		{name: "reduce-scatter, strict", ranks: 4, args: "--op reduce_scatter --strict -m 36", err: "-m: found 36, which leaves 1 integers over when 4 ranks share it"},
		{name: "threads of another operation", ranks: 4, args: "--op bcast --engine dpa --threads 2", err: "--threads: found 2 threads for --op bcast, expected 1, which runs the whole collective"},
		{name: "engine", ranks: 4, args: "--engine gpu", err: `--engine: found "gpu", expected inline, thread, dpa or daemon`},
		{name: "threads without their engine", ranks: 4, args: "--threads 2", err: "--threads: found 2 threads for --engine inline, expected --engine dpa"},
		{name: "no threads", ranks: 4, args: "--engine dpa --threads 0", err: "--threads: found 0, expected 1 to 4: each thread serves at least one of 4 ranks"},
		{name: "more threads than ranks", ranks: 4, args: "--engine dpa --threads 5", err: "--threads: found 5, expected 1 to 4"},
		{name: "empty device", ranks: 4, args: "-d a,", err: `-d: found "a,", expected NAME`},
		{name: "no device", ranks: 4, args: "--devices=", err: `-d: found "", expected NAME`},
		{name: "iterations", ranks: 4, args: "-i -1", err: "-i: found -1, expected 0 or more"},
		{name: "warmup", ranks: 4, args: "-w -1", err: "-w: found -1, expected 0 or more"},
		{name: "print", ranks: 4, args: "--print some", err: `--print: found "some", expected full, head or none`},
	} {
		t.Run(c.name, func(t *testing.T) {
			parser, p := newParser(c.ranks)
			args := strings.Fields(c.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "+", " ")
			}
			err := parser.Parse(args)
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.err) {
					t.Errorf("%q on %d ranks: got %+v, error %v, want error %s", args, c.ranks, *p, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%q on %d ranks: %v", args, c.ranks, err)
			}
			if p.settle(c.ranks, cmp.Or(c.cpus, 64)); *p != c.want {
				t.Errorf("%q on %d ranks\n got %+v\nwant %+v", args, c.ranks, *p, c.want)
			}
			// What is broadcast is all there is to know.
			var copied params
			if copied.adopt(p.words(), p.texts()); copied != *p {
				t.Errorf("after the broadcast\n got %+v\nwant %+v", copied, *p)
			}
			if got, want := p.textLen(p.words()), int64(len(p.texts())); got != want {
				t.Errorf("textLen = %d, want %d", got, want)
			}
		})
	}
}

func TestShares(t *testing.T) {
	p := params{op: "alltoall", msgsize: 36}
	if p.ints() != 9 || p.perPeer(4) != 2 || p.unused(4) != 1 {
		t.Errorf("36 bytes on 4 ranks: %d integers, %d for each, %d over; want 9, 2, 1", p.ints(), p.perPeer(4), p.unused(4))
	}
	p.op = "bcast"
	if p.perPeer(4) != 9 || p.unused(4) != 0 {
		t.Errorf("36 bytes to broadcast to 4 ranks: %d integers in a block, %d over; want 9, 0", p.perPeer(4), p.unused(4))
	}
}
