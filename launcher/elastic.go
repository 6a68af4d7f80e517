package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Elastic has a job run with as many ranks as there are slots for, between two limits. When a host fails, is no longer
// listed or with fewer slots than it has ranks, or further ones are listed and fewer than Max ranks run, the job starts again with the hosts that are there
// then, as a new world of another size; Restarts.Max does not count that. Ranks of a start that ends for other hosts
// get SIGTERM, and SIGKILL after Job.Grace: time for a checkpoint.
//
// A host that has failed is set aside until it was missing in the list once.
type Elastic struct {
	// Min and Max are the limits of the number of ranks.
	Min, Max int
	// Discover lists the hosts that are there, in the order in which ranks fill them. It is called before each start,
	// and each second while the job runs, never twice at the same time. It must return when its context ends, which
	// it does after 10 seconds. An error ends a start that waits, after Timeout; one that runs goes on. nil: the
	// hosts are Job.Hosts.
	Discover func(context.Context) ([]Host, error)
	// Timeout is how long a start waits for Min slots. 0: DefaultElasticTimeout.
	Timeout time.Duration
}

// DefaultElasticTimeout is the default of Elastic.Timeout, as Horovod has it.
const DefaultElasticTimeout = 10 * time.Minute

const (
	// discoverEvery is the pause between two calls of Elastic.Discover, and discoverLimit the time for one.
	discoverEvery = time.Second
	discoverLimit = 10 * time.Second
)

// checkElastic validates what a job says of Elastic.
func checkElastic(job *Job) *JobError {
	e := job.Elastic
	limits := fmt.Sprintf("%d:%d", e.Min, e.Max)
	switch {
	case e.Min < 1 || e.Max < e.Min:
		return bad("Elastic", limits, "want a least and a greatest number of ranks, from 1 on, as 2:8")
	case e.Timeout < 0:
		return bad("Elastic.Timeout", e.Timeout.String(), "want 0 for %v, or a time", DefaultElasticTimeout)
	case len(job.Apps) > 1:
		return bad("Elastic", limits, "found %d programs, want one, whose number of ranks may change", len(job.Apps))
	case job.NP != 0 || len(job.Apps) == 1 && job.Apps[0].NP != 0:
		return bad("NP", strconv.Itoa(max(job.NP, append(job.Apps, App{})[0].NP)), "found a number of ranks beside the limits of it, %s; want one of both", limits)
	case job.Placing.RankFile != "":
		return bad("Placing.RankFile", "", "it places a fixed number of ranks, want none with Elastic (%s)", limits)
	case job.Continuous:
		return bad("Elastic", limits, "found beside it that the job is to go on without the ranks of a lost host (Continuous, --continuous); want one of both")
	case e.Discover != nil && len(job.Hosts) > 0:
		return bad("Elastic.Discover", "", "found hosts beside it (%s), want one of both", listHosts(job.Hosts))
	case e.Discover == nil && len(job.Hosts) == 0:
		return bad("Elastic", limits, "found no hosts, want Hosts, or a Discover that lists them")
	}
	return nil
}

// A discovery is what one call of Elastic.Discover has found.
type discovery struct {
	hosts []Host
	err   error
}

// discover calls Elastic.Discover on a goroutine of its own.
func (e *Elastic) discover(ctx context.Context) <-chan discovery {
	found := make(chan discovery, 1)
	go func() {
		ctx, cancel := context.WithTimeoutCause(ctx, discoverLimit, fmt.Errorf("no answer within %v", discoverLimit))
		defer cancel()
		hosts, err := e.Discover(ctx)
		found <- discovery{hosts, err}
	}()
	return found
}

// gather gives the job the hosts of its next start. With Job.Elastic it waits until there are enough.
func (r *roster) gather(ctx context.Context, watch *watcher, end time.Time) *Cause {
	job := r.job
	e := job.Elastic
	if e == nil {
		job.Hosts, _ = r.next()
		return nil
	}
	patience := cmp.Or(e.Timeout, DefaultElasticTimeout)
	said := ""
	for since := time.Now(); ; {
		cause, failed := r.ask(ctx, end)
		if cause != nil {
			return cause
		}
		hosts, ranks := r.next()
		if failed == nil && ranks > 0 {
			job.Hosts = hosts
			job.setNP(ranks)
			return nil
		}
		why := fmt.Sprintf("found %v, expected %d or more", r, e.Min)
		if failed != nil {
			why = fmt.Sprintf("the list of hosts: %v", failed)
		}
		if e.Discover == nil {
			return &Cause{Rank: -1, Status: statusFailed, Message: "too few hosts are left: " + why}
		}
		if time.Since(since) >= patience {
			return &Cause{Rank: -1, Status: statusFailed, Message: fmt.Sprintf("too few hosts for %v: %s", patience, why)}
		}
		if why != said {
			watch.putWarning("waiting for hosts: " + why)
			said = why
		}
		if _, cause := awaitFor(ctx, job, time.After(min(discoverEvery, patience)), end); cause != nil {
			return cause
		}
	}
}

// ask lists the hosts anew, if somebody knows.
func (r *roster) ask(ctx context.Context, end time.Time) (cause *Cause, failed error) {
	if r.job.Elastic.Discover == nil {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := r.job.Elastic.discover(ctx)
	got, cause := awaitFor(ctx, r.job, found, end)
	if cause != nil {
		cancel()
		<-found
		return cause, nil
	}
	if got.err == nil {
		r.list(got.hosts)
	}
	return nil, got.err
}

// setNP sets the number of ranks of a job with one program.
func (job *Job) setNP(ranks int) {
	if job.Apps == nil {
		job.NP = ranks
		return
	}
	job.Apps = slices.Clone(job.Apps)
	job.Apps[0].NP = ranks
}

// hostsChanged ends a start for one with other hosts.
type hostsChanged struct{ why string }

func (e *hostsChanged) Error() string { return e.why }

// run starts the job once. moved: it has ended for a start with other hosts.
func (r *roster) run(ctx context.Context, at attempt) (result Result, moved bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	job := *r.job
	placed := make(chan struct{})
	job.Placing.Placed = func(p Placement) {
		again := r.placed(p)
		close(placed)
		if r.job.Placing.Placed != nil && !again {
			r.job.Placing.Placed(p)
		}
	}
	var watching sync.WaitGroup
	if job.Elastic != nil && job.Elastic.Discover != nil {
		watching.Go(func() {
			select {
			case <-placed:
				r.watch(ctx, cancel)
			case <-ctx.Done():
			}
		})
	}
	result, err = run(ctx, job, at)
	cancel(nil)
	watching.Wait()
	changed, is := errors.AsType[*hostsChanged](context.Cause(ctx))
	c := result.Cause
	return result, is && c != nil && c.Rank < 0 && c.Host == "" && c.Message == changed.why, err
}

// watch lists the hosts while the job runs, and ends the start when other ones serve it better: twice in
// a row, since hosts may come and go one by one.
func (r *roster) watch(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(discoverEvery)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		found := <-r.job.Elastic.discover(ctx)
		why := ""
		if found.err == nil {
			r.list(found.hosts)
			why = r.changed()
		} else if r.job.Log != nil && ctx.Err() == nil {
			r.job.Log.Info("the list of hosts", "error", found.err)
		}
		if why != "" && why == last {
			end(&hostsChanged{why})
			return
		}
		last = why
	}
}
