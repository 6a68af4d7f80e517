package profile

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"
)

// How much the summary says: 25 lines at most.
const (
	faultsMost = 4
	callsMost  = 10
	waitsMost  = 5
)

// Summary writes the profile in at most 25 lines, each behind a prefix. The first says what is wrong.
func (r *Report) Summary(w io.Writer, prefix string) error {
	var b strings.Builder
	for i, f := range r.Faults[:min(len(r.Faults), faultsMost)] {
		if i == 0 || f.Share*4 > r.Faults[0].Share {
			fmt.Fprintln(&b, f.Text)
		}
	}
	switch {
	case len(r.Ranks) == 0:
		fmt.Fprintln(&b, "no rank has recorded calls: recorded are those of Go programs of package rank, and of programs that load an MPI and call MPI_Init; none of static programs")
	case len(r.Faults) == 0:
		fmt.Fprintf(&b, "no rank waits for another for %s of the time or more\n", percent(worthSaying))
	}
	if len(r.Ranks) > 0 {
		r.table(&b)
	}
	for line := range strings.Lines(b.String()) {
		if _, err := io.WriteString(w, prefix+line); err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) table(b *strings.Builder) {
	outside, most := time.Duration(0), 0
	for i, d := range r.Outside {
		if outside += d; d > r.Outside[most] {
			most = i
		}
	}
	fmt.Fprintf(b, "%s of %d ranks; %s outside of calls: median %s, most %s (%s)\n", short(r.Elapsed), len(r.Ranks),
		percent(share(outside, r.Total)), short(median(r.Outside)), short(r.Outside[most]), r.name(most))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "call\tplace\tcalls\tbytes\ttime\tshare\tleast (rank)\tmost (rank)\t\n")
	for _, s := range r.Calls[:min(len(r.Calls), callsMost)] {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s (%d)\t%s (%d)\t\n", s.Op, s.At, s.Count, bytes(max(s.Out, s.In)), short(s.Total), percent(share(s.Total, r.Total)),
			short(s.ByRank[s.Least]), r.Ranks[s.Least].Rank, short(s.ByRank[s.Most]), r.Ranks[s.Most].Rank)
	}
	_ = t.Flush() // into memory
	if n := len(r.Calls) - callsMost; n > 0 {
		fmt.Fprintf(b, "and %d further places\n", n)
	}
	for _, w := range r.Waits[:min(len(r.Waits), waitsMost)] {
		if float64(w.Total) >= worthSaying/3*float64(r.Total) {
			fmt.Fprintf(b, "%s: %d waits for %s, in %s (%s), %s, the longest %s\n", w.Kind, w.Count, r.name(w.For), w.Op, w.At, short(w.Total), short(w.Longest))
		}
	}
	for _, note := range r.notes() {
		fmt.Fprintln(b, note)
	}
}

// notes say what the profile does not show.
func (r *Report) notes() (notes []string) {
	concurrent, unfinished := 0, 0
	var dropped, retries, errors uint64
	for i := range r.Ranks {
		k := &r.Ranks[i]
		dropped += k.Dropped
		if k.RDMA != nil {
			retries, errors = retries+k.RDMA.Retries, errors+k.RDMA.Errors
		}
		if k.Concurrent {
			concurrent++
		} else if !k.Finalized {
			unfinished++
		}
	}
	if dropped > 0 {
		notes = append(notes, fmt.Sprintf("the time line and the waits are of the last calls: %d earlier ones are in the sums alone", dropped))
	}
	if n := r.Size - len(r.Ranks); n > 0 && r.Ranks[0].Group == 0 {
		notes = append(notes, fmt.Sprintf("%d of %d ranks have recorded nothing", n, r.Size))
	}
	if concurrent > 0 {
		notes = append(notes, fmt.Sprintf("%d ranks call from several goroutines at once (Config.Concurrent): their calls are not recorded", concurrent))
	}
	if unfinished > 0 {
		notes = append(notes, fmt.Sprintf("%d ranks ended without Finalize: their last calls are there", unfinished))
	}
	if retries+errors > 0 {
		notes = append(notes, fmt.Sprintf("RDMA requests were repeated %d times, and %d ended with errors", retries, errors))
	}
	for _, c := range r.Clocks {
		if c.Guessed {
			notes = append(notes, "the clock of host "+c.Host+" could not be compared: nothing was exchanged with it")
		} else if c.Error > 0 {
			notes = append(notes, fmt.Sprintf("the clock of host %s is known to %s", c.Host, short(c.Error)))
		}
	}
	return notes
}

func share(d, of time.Duration) float64 {
	if of <= 0 {
		return 0
	}
	return float64(d) / float64(of)
}

// bytes is a number of bytes for people.
func bytes(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	exp := int(math.Log2(float64(n)) / 10)
	return fmt.Sprintf("%.1f %ciB", float64(n)/math.Pow(1024, float64(exp)), "KMGTPE"[exp-1])
}
