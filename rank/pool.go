package rank

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/gorun/internal/pack"
)

// A reply is a worker's answer to a task, whose number is the message's tag.
type reply[Out any] struct {
	Out    Out
	Failed bool
	Error  string
}

// Pool runs f on the tasks of rank 0. All other ranks work, each on one task at a
// time; when there is only one rank, it works itself. Pool returns the results on rank
// 0, in the order of the tasks, and nil elsewhere. All ranks call it, with the same f;
// tasks is ignored on other ranks. Tasks and results are encoded as by [SendAny].
//
// After an f has failed no further task is started, and rank 0 gets the error.
func Pool[In, Out any](ctx context.Context, c *Comm, tasks []In, f func(ctx context.Context, task In) (Out, error)) ([]Out, error) {
	if c.Size() == 1 {
		results := make([]Out, len(tasks))
		for i, task := range tasks {
			var err error
			if results[i], err = f(ctx, task); err != nil {
				return nil, poolError(i, 0, err.Error())
			}
		}
		return results, nil
	}
	d, err := c.Dup(ctx) // so that no message of the program is taken for a task
	if err != nil {
		return nil, err
	}
	var results []Out
	if c.Rank() == 0 {
		results, err = handOut[In, Out](ctx, d, tasks)
	} else {
		err = work(ctx, d, f)
	}
	if freed := d.Free(ctx); err == nil {
		err = freed
	}
	return results, err
}

// handOut is rank 0 of a pool. A worker that gets no task gets an empty message.
func handOut[In, Out any](ctx context.Context, d *Comm, tasks []In) (results []Out, failed error) {
	next, busy := 0, 0
	give := func(worker int) error {
		if next == len(tasks) || failed != nil {
			return Send(ctx, d, []byte(nil), worker, 0)
		}
		b, err := pack.Marshal(tasks[next])
		if err != nil {
			failed = badClass(ClassType, "task %d: %v", next, err)
			return Send(ctx, d, []byte(nil), worker, 0)
		}
		err = Send(ctx, d, b, worker, next)
		next, busy = next+1, busy+1
		return err
	}
	for worker := 1; worker < d.Size(); worker++ {
		if err := give(worker); err != nil {
			return nil, err
		}
	}
	results = make([]Out, len(tasks))
	for busy > 0 {
		r, st, err := RecvAny[reply[Out]](ctx, d, AnySource, AnyTag)
		if err != nil && st.Source <= 0 {
			return nil, err
		}
		busy--
		if err != nil {
			r.Failed, r.Error = true, err.Error()
		}
		if r.Failed && failed == nil {
			failed = poolError(st.Tag, st.Source, r.Error)
		}
		results[st.Tag] = r.Out
		if err := give(st.Source); err != nil {
			return nil, err
		}
	}
	if failed != nil {
		return nil, failed
	}
	return results, nil
}

// work is any other rank of a pool.
func work[In, Out any](ctx context.Context, d *Comm, f func(context.Context, In) (Out, error)) error {
	for {
		b, st, err := RecvSlice[byte](ctx, d, 0, AnyTag)
		if err != nil || len(b) == 0 {
			return err
		}
		var task In
		var r reply[Out]
		if err = pack.Unmarshal(b, &task); err == nil {
			r.Out, err = f(ctx, task)
		}
		if err == nil {
			err = SendAny(ctx, d, r, 0, st.Tag)
		}
		if err != nil {
			err = SendAny(ctx, d, reply[Out]{Failed: true, Error: err.Error()}, 0, st.Tag)
		}
		if err != nil {
			return err
		}
	}
}

func poolError(task, rank int, text string) error {
	return fmt.Errorf("task %d, on rank %d: %s", task, rank, text)
}
