package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/reach"
	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// The words for Agents.Launcher that name no batch system.
const (
	launcherFork = "fork"
	launcherSSH  = "ssh"
)

// sshOptions never ask anything, for nobody could answer, give up before startLimit, and leave
// no master connection behind. They come last: ssh takes the first value that it is given.
var sshOptions = []string{"-x", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ConnectionAttempts=2", "-o", "ControlMaster=no"}

// findLauncher fills in how agents are started, where the job leaves it open: by ssh as
// soon as a host is another machine. Where none is, nothing is started by ssh or srun.
func (job *Job) findLauncher() *JobError {
	remote := cmp.Or(job.Agents.Launcher, launcherSSH)
	switch job.Agents.Launcher {
	case launcherFork:
		if len(job.Agents.Command) == 0 {
			return bad("Agents.Command", "", "launcher fork needs the command of an agent")
		}
		return nil
	case "", launcherSSH:
	default:
		b := job.launchedBy()
		switch {
		case b == nil:
			return bad("Agents.Launcher", job.Agents.Launcher, "want %s, or none", strings.Join(Launchers(), ", "))
		case len(job.Agents.Shell) > 0:
			return bad("Agents.Shell", job.Agents.Shell[0], "with the launcher %s, %s starts the agents; want one of both", b.Launcher, b.Command)
		case !b.isAround(job):
			return bad("Agents.Launcher", b.Launcher, "found no %s, want %s around this process; try %s", strings.Join(b.variables, " and "), b.Allocation, b.submit)
		}
	}
	job.Agents.Launcher = ""
	self := job.here()
	for _, h := range job.Hosts {
		if h.Name == "" || self.Is(h.Name) {
			continue
		}
		if strings.HasPrefix(h.Name, "-") || strings.HasPrefix(h.User, "-") {
			return bad("Hosts", strings.TrimPrefix(h.User+"@"+h.Name, "@"), "a remote shell would take it for an option; want the name of a host")
		}
		if len(job.Agents.Command) == 0 {
			return bad("Hosts", h.Name, "it is not this machine (%s), and Agents.Command, the program that runs the ranks there, is not set", self.Name)
		}
		job.Agents.Launcher = remote
	}
	return nil
}

// Launchers are the words for [Agents.Launcher].
func Launchers() []string {
	words := []string{launcherSSH}
	for _, b := range batchSystems {
		words = append(words, b.Launcher)
	}
	return append(words, launcherFork)
}

// apart tells whether some hosts are other machines.
func (job *Job) apart() bool { return job.Agents.Launcher != "" && job.Agents.Launcher != launcherFork }

// sendDir has ranks start in this process's directory where the job names none: an agent
// of another machine is in another one.
func (job *Job) sendDir() {
	here, err := os.Getwd()
	for i := range job.Apps {
		if a := &job.Apps[i]; err == nil && !filepath.IsAbs(a.Dir) {
			a.Dir = filepath.Join(here, a.Dir)
		}
	}
}

// NeedsAgent tells whether a job cannot run without Agents.Command: with the launcher fork, and
// where a host is another machine.
func (job *Job) NeedsAgent() bool {
	return job.Agents.Launcher == launcherFork || len(job.OtherMachines()) > 0
}

// OtherMachines are the names of Hosts that are not this machine's.
func (job *Job) OtherMachines() []string {
	var names []string
	self := job.here()
	for _, h := range job.Hosts {
		if h.Name != "" && !self.Is(h.Name) {
			names = append(names, h.Name)
		}
	}
	return names
}

// remote tells whether a host is reached by the remote shell, by srun or qrsh.
func (job *Job) remote(host string) bool { return job.apart() && host != "" && !job.here().Is(host) }

// hostName is the name that the job has for a host: this machine has one only, but with
// the launcher fork, to which each name is a host.
func (job *Job) hostName(name string) string {
	if self := job.here(); job.Agents.Launcher != launcherFork && self.Is(name) {
		return self.Name
	}
	return name
}

// here is what knows this machine's names.
func (job *Job) here() *reach.Self {
	if job.run.self == nil { // before Run
		return reach.This()
	}
	return job.run.self
}

// oneHost tells whether all of the job's host names are this machine's.
func (job *Job) oneHost() bool { return job.Agents.Launcher == "" }

// agentOf is the command that starts the agent of a host.
func (job *Job) agentOf(host string) []string {
	if !job.remote(host) {
		return job.Agents.Command
	} else if b := job.launchedBy(); b != nil {
		return b.start(job, host, job.remoteStart())
	}
	return slices.Concat(job.shell(), []string{job.login(host), "exec " + quote(job.remoteStart())})
}

// noAgent is why the command that starts a host's agent could not be run.
func (job *Job) noAgent(host string, err error) *JobError {
	field, value := "Agents.Command", job.agentOf(host)[0]
	switch {
	case !job.remote(host):
	case job.Agents.Launcher == launcherSSH:
		field = "Agents.Shell"
	default:
		field, value = "Agents.Launcher", job.Agents.Launcher
	}
	err = fmt.Errorf("host %s: %w", host, err)
	if field == "Agents.Launcher" && errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%w; try --launcher ssh, or -H localhost:N for N ranks on this machine alone", err)
	}
	return &JobError{Field: field, Value: value, ExitStatus: statusFailed, Err: err}
}

// remoteStart is what starts an agent on another host: its command, or what sends its program first.
func (job *Job) remoteStart() []string {
	if job.run.stage != nil {
		return job.run.stage.Command()
	}
	return job.remoteAgent()
}

// readStage reads the agent's program, where it is to be sent to hosts.
func (job *Job) readStage() *JobError {
	if !job.Agents.Stage || !job.apart() {
		return nil
	}
	if len(job.Agents.Remote) > 0 || len(job.Agents.Command) != 1 {
		return bad("Agents.Stage", "", "found an agent's command (%s) beside it, want one of both", strings.Join(slices.Concat(job.Agents.Remote, job.Agents.Command[1:]), " "))
	}
	stage, err := agent.ReadStage(job.remoteAgent()[0])
	if err != nil {
		return bad("Agents.Stage", "", "the agent's program: %w", err)
	}
	job.run.stage = stage
	return nil
}

// shell is the remote shell with its options.
func (job *Job) shell() []string {
	if len(job.Agents.Shell) > 0 {
		return slices.Concat(job.Agents.Shell, job.Agents.ShellArgs)
	}
	return slices.Concat([]string{"ssh"}, job.Agents.ShellArgs, sshOptions)
}

// login is a host as the remote shell is told it, with the user's name there.
func (job *Job) login(host string) string {
	for _, h := range job.Hosts {
		if h.Name == host && h.User != "" {
			return h.User + "@" + host
		}
	}
	return host
}

// remoteAgent is the agent's command on other hosts: that of this one, by its whole
// path, unless the job names another.
func (job *Job) remoteAgent() []string {
	if len(job.Agents.Remote) > 0 {
		return job.Agents.Remote
	}
	there := slices.Clone(job.Agents.Command)
	if path, err := exec.LookPath(there[0]); err == nil {
		there[0] = path
	}
	if path, err := filepath.Abs(there[0]); err == nil {
		there[0] = path
	}
	return there
}

// tryAgent is what a user types to see why an agent does not start. What a script has done before that, it has told.
func (job *Job) tryAgent(host string) string {
	check := slices.Concat(job.remoteAgent(), []string{"--version"})
	if job.run.stage != nil {
		check = []string{"true"}
	}
	if b := job.launchedBy(); b != nil {
		return b.try(job, host, check)
	}
	shell := job.Agents.Shell
	if len(shell) == 0 {
		shell = []string{"ssh"}
	}
	return strings.Join(slices.Concat(shell, job.Agents.ShellArgs, []string{job.login(host)}, check), " ")
}

// quote is a command for a POSIX shell, and for csh.
func quote(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

// startAgent starts the agent of a host, by its relay if it has one.
func (job *Job) startAgent(host string) (*agent.Link, error) {
	if l := job.relayed(host); l != nil {
		return l, nil
	}
	return job.startDirect(host)
}

// startDirect starts the agent of a host from here.
func (job *Job) startDirect(host string) (*agent.Link, error) {
	if !job.remote(host) {
		return agent.Start(job.agentOf(host), coreless(job.Env), host, nil)
	}
	s := &agent.Shell{Stage: job.run.stage, Gate: job.run.gate}
	if job.Agents.Launcher == launcherSSH {
		s.Again, s.Silence = job.again(host), job.agentTimeout()
	}
	// ssh is the user's, whatever the ranks' environment is.
	return agent.Start(job.agentOf(host), coreless(job.run.environ), host, s)
}

// coreless is env without the wish that Go programs leave core files: it is meant for the ranks, which get theirs from the spec.
func coreless(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(setting string) bool { return setting == "GOTRACEBACK=crash" })
}

// sshPauses are before further tries to reach a host whose name or sshd is not there: a
// container's come some seconds after it.
var sshPauses = [...]time.Duration{time.Second, 3 * time.Second}

// again has ssh tried again where a host is not there yet, and tells of it.
func (job *Job) again(host string) agent.Again {
	return func(tries int, said []string) (time.Duration, bool) {
		if tries > len(sshPauses) || len(said) == 0 || !notYet(said[len(said)-1]) {
			return 0, false
		}
		pause := sshPauses[tries-1]
		job.Log.Info("host not reached yet", "host", host, "said", said[len(said)-1], "try", fmt.Sprintf("%d of %d in %v", tries+1, len(sshPauses)+1, pause))
		return pause, true
	}
}

// notYet tells whether a line is ssh's about a host without a name or an sshd.
func notYet(line string) bool {
	return strings.HasPrefix(line, "ssh: ") && (strings.Contains(line, "Could not resolve hostname") || strings.HasSuffix(line, "Connection refused"))
}

// noAgent begins what is said of a host whose agent never greeted.
const noAgent = "no agent was started: "

// lostAgent ends an agent whose stream has ended, and says why it has: of one that never
// greeted, what the remote shell said, else what is wrong with its stream.
func (job *Job) lostAgent(l *agent.Link, host string, why error) *Cause {
	if l.Relay() != nil {
		l.Close() // which knows then
	}
	if l.LostRelay() {
		if up, failed := l.Relay().IsUp(); up {
			return job.lostRelay(l.Relay())
		} else if l.OfRelay() {
			l, why = l.Relay().Login(), failed
		}
	}
	pid := l.PID() // of a local process none is known when it was waited for
	how, complaints := l.Close()
	pid = cmp.Or(l.PID(), pid)
	last := ""
	if n := len(complaints); n > 0 {
		last = ": " + complaints[n-1]
	}
	command := job.agentOf(host)[0]
	if l.OfRelay() {
		command = job.remoteAgent()[0]
	}
	var message string
	switch {
	case why != nil && last == "":
		message = noAgent + why.Error()
	case !l.Remote():
		message = fmt.Sprintf("its agent (pid %d) %s%s", pid, how, last)
	case l.Reached():
		message = fmt.Sprintf("its agent (pid %d there) is lost: %s %s%s", pid, command, how, last)
	default:
		message = noAgent + command + " " + how + last
	}
	if l.Remote() && !l.Reached() && !strings.Contains(last, ": --stage: ") { // which says what to do
		message += "; try " + job.tryAgent(host)
	}
	return &Cause{Rank: -1, Host: host, PID: pid, Status: statusFailed, Message: message, Stderr: complaints, lost: why != nil || !l.Killed()}
}

// A routing is how the hosts of a job reach each other, found once.
type routing struct {
	job    *Job
	own    string // an address of this machine, as the other hosts see it; "": not known
	toward string // an address of another host; "": not known
}

// lookupLimit is how long the name of a host may take to be found out.
const lookupLimit = 5 * time.Second

// findReach looks up the first other host of a job, and the address from which this
// machine reaches it.
func findReach(ctx context.Context, job *Job) *routing {
	w := &routing{job: job}
	at := slices.IndexFunc(job.Hosts, func(h Host) bool { return job.remote(h.Name) })
	if at < 0 {
		return w
	}
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	name := job.Hosts[at].Name
	if job.Agents.Launcher == launcherSSH {
		name = sshName(ctx, job, name)
	}
	if found, err := net.DefaultResolver.LookupIPAddr(ctx, name); err == nil && len(found) > 0 {
		w.toward = found[0].String()
	}
	if a, _, err := w.of("").Address(""); err == nil {
		w.own = a.String()
	}
	return w
}

// sshName is what ssh's configuration calls a host, which may be an alias there.
func sshName(ctx context.Context, job *Job, host string) string {
	if len(job.Agents.Shell) > 0 {
		return host
	}
	text, err := exec.CommandContext(ctx, "ssh", slices.Concat([]string{"-G"}, job.Agents.ShellArgs, []string{host})...).Output()
	if err != nil {
		return host
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "hostname "); ok {
			return strings.TrimSpace(name)
		}
	}
	return host
}

// of is the way of a host; "" is this machine.
func (w *routing) of(host string) agent.Way {
	switch {
	case !w.job.apart():
		return agent.Way{}
	case w.job.remote(host):
		return agent.Way{Apart: true, Interface: w.job.Network.Interface, Toward: w.own, Ports: w.job.run.ports, Remote: w.job.Agents.Launcher == launcherSSH}
	}
	return agent.Way{Apart: true, Interface: w.job.Network.Interface, Toward: w.toward, Ports: w.job.run.ports}
}

// local tells whether a setting of the environment means something on this machine alone:
// what this process has, unless the user has said so of the ranks.
func (job *Job) local(setting string) bool {
	if !slices.Contains(job.run.environ, setting) {
		return false
	}
	name, _, _ := strings.Cut(setting, "=")
	switch name {
	case "HOSTNAME", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "TMPDIR":
		return true
	}
	return strings.HasPrefix(name, "SSH_") || strings.HasPrefix(name, "XDG_")
}
