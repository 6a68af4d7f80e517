// Package wait is how a rank waits for memory to change: latency is decided
// here, and so is what an idle rank costs.
//
// # Design
//
// A [Waiter] polls a [Condition] and does something between two misses that
// depends on how long it has waited:
//
//	ready at once?  -------------------------------------------> return
//	     | miss
//	     v
//	SPIN   PAUSE between polls, for 10 us and at most 1000 polls;
//	     | skipped with more ranks than CPUs: it would only delay the rank
//	     v          that is waited for
//	YIELD  sched_yield between polls (Scheduler: Gosched)
//	     | no sooner than after IdleAfter
//	     v
//	PARK   Sleeper: Prepare, poll, Sleep for 10 ms or an eighth of the time
//	       waited so far, up to 100 ms;
//	       woken, it yields a little again, for traffic has resumed.
//	       No Sleeper: timer sleeps of an eighth of the time waited so
//	       far, 50 us to 10 ms.
//
// The rules behind it:
//
//   - No wait ends by a time-out when what it waits for has come. An event after
//     Prepare wakes the rank; an earlier one is found by the poll behind Prepare, in
//     which the Condition looks at everything ([Waiter.Thorough]). [Counts] has the
//     exceptions.
//   - A thread that makes only raw system calls never lets the runtime in, and a
//     garbage collection would wait for it for ever. Every poll here is a safe
//     point (a call with a stack check, about 1 ns), every 64th yield is one that
//     the scheduler sees (with GOMAXPROCS=1 it gives up the processor too), and
//     parking is always through the scheduler.
//   - Ranks that are goroutines of one process never yield the thread: the rank
//     that is waited for may need this very thread. They yield to the scheduler.
//   - Ranks that hand over to each other by yields look like one thread to the
//     kernel, which gathers them on one CPU and leaves the others idle: four ranks
//     on two CPUs then take 2-3 times as long. So an oversubscribed rank that waits
//     returns to the CPU of its place now and then. It is not bound to it: where
//     another program needs that CPU, the kernel may move the rank for up to 128 ms.
//   - A waiting rank makes no system call that may block, but for its sleep. Another
//     goroutine moves it, which lives for one move.
//   - The clock (28 ns) and the context are looked at every 8th yield and when
//     idle: a yield beside a busy process can take milliseconds.
//
// A Waiter belongs to its maker and holds no memory but its own. The Condition is called on the waiting goroutine only, and may
// make progress and block for as long as its caller can bear. Wait ends with the
// condition or the context, whichever is noticed first; nothing else ends it:
// the death of a peer is part of the Condition.
package wait
