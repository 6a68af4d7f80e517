// Package profile tells where a job's time went: which calls took it, who waited for whom, and whether the work is even.
//
// The ranks of a job with launcher.Job.Profile record their calls; launcher.Result.Profile has what they recorded, and
//
//	report := profile.Analyze(result.Profile)
//	report.Summary(os.Stderr)   // at most 25 lines, the worst first
//	report.WritePage(file)      // a page for a browser, which needs nothing else
//	report.WriteTrace(file)     // for Perfetto and chrome://tracing
//	report.WriteJSON(file)
//
// # What a wait is
//
// A rank waits in a collective from its own begin to that of the last one that came, if it had not returned before. It waits in a
// receive until the send begins (a late sender), and in a blocking send until the receive does (a late receiver). Waits are found among the
// events that ranks have kept, the last ones of a long job; sums of calls are of all.
//
// # Clocks
//
// Hosts that are apart have clocks of their own. No message is received before it is sent, and nobody leaves an all-reduce before
// all have come: by this each host's clock is set to that of rank 0's host. Report.Clocks says how far it may be off.
package profile
