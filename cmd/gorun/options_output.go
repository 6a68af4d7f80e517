package main

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/launcher"
)

// outputSettings are what the options say of the ranks' output, until it is
// known what gorun's own is.
type outputSettings struct {
	tag, timestamp bool
	pattern        string // before each line, instead of the tag
}

// looks is what depends on whether gorun's output is a terminal.
type looks struct {
	color, pty string // auto, always or never; "" stands for auto
	plain      bool   // the environment asks for no colours
	progress   bool
}

// outputOptions are the options that say what becomes of what the ranks write
// and read, and what gorun says itself.
func outputOptions() []option {
	when := []string{"auto", "always", "never"}
	return []option{
		{names: []string{"tag-output"}, family: "Output",
			help: "put [1,RANK]<stdout>: or [1,RANK]<stderr>: before each line", set: setSwitch(func(s *settings, on bool) { s.tag = on })},
		{names: []string{"prepend-rank"}, short: "l", family: "Output",
			help: "put [RANK] before each line", set: setSwitch(func(s *settings, on bool) { s.pattern = map[bool]string{true: launcher.RankPrefix}[on] })},
		{names: []string{"prepend-pattern"}, arity: 1, family: "Output", value: "PATTERN",
			help: "put PATTERN before each line: %r rank, %h host, %s stdout or stderr, %T time ...",
			set:  func(s *settings, value string) error { s.pattern = value; return nil }},
		{names: []string{"timestamp-output"}, family: "Output",
			help: "put the date and time before each line", set: setSwitch(func(s *settings, on bool) { s.timestamp = on })},
		{names: []string{"color"}, arity: 1, family: "Output", value: "auto|always|never", words: when,
			help: "colour the prefixes of lines by rank (auto: on a terminal without NO_COLOR)", set: setWhen(func(s *settings) *string { return &s.looks.color })},
		{names: []string{"output"}, arity: 1, family: "Output", value: "WORD,...", words: []string{"json", "tag", "rank", "timestamp", "xml", "merge-stderr-to-stdout", "dir=", "file="},
			help: "json: one object per line of output, and for start, failure and end; tag, rank, xml, dir=DIR, file=FILE ...; :raw passes output on as it is written", set: setOutput},
		{names: []string{"output-filename"}, more: []string{"output-directory"}, arity: 1, family: "Output", value: "DIR[:nocopy]",
			help: "write also to DIR/1/rank.RANK/stdout and stderr; with :nocopy only there", set: setOutputFilename},
		{names: []string{"outfile-pattern"}, more: []string{"outfile"}, arity: 1, family: "Output", value: "FILE",
			help: "write standard output only to FILE; %r (rank), %h (host) ... in its name give each rank a file", set: setFilePattern(launcherStdout)},
		{names: []string{"errfile-pattern"}, more: []string{"errfile"}, arity: 1, family: "Output", value: "FILE",
			help: "the same for standard error", set: setFilePattern(launcherStderr)},
		{names: []string{"output-from"}, arity: 1, family: "Output", value: "RANK,...",
			help: "show the output of these ranks only", set: setOutputFrom},
		{names: []string{"merge-stderr-to-stdout"}, more: []string{"merge-stderr"}, family: "Output",
			help: "send the ranks' standard error to their standard output", set: setSwitch(func(s *settings, on bool) { s.job.Output.Merge = on })},
		{names: []string{"xml"}, family: "Output",
			help: "write output as XML", set: setSwitch(func(s *settings, on bool) { s.job.Output.Form = map[bool]launcher.Form{true: launcher.XML}[on] })},
		{names: []string{"xml-file"}, arity: 1, family: "Output", value: "FILE",
			help: "write output as XML, only to FILE", set: setXMLFile},
		{names: []string{"stdin"}, fills: "StdinRank", arity: 1, family: "Output", value: "RANK|all|none", words: []string{"all", "none"},
			help: "rank that reads standard input (default 0)", set: setStdin},
		{names: []string{"s"}, arity: 1, under: hydra, family: "Output", value: "RANK|all|none",
			help: "same as --stdin", set: setStdin},
		{names: []string{"pty"}, fills: "Output.Terminal", arity: 1, family: "Output", value: "auto|always|never", words: when,
			help: "give ranks a terminal as standard output (auto: when gorun has one)", set: setWhen(func(s *settings) *string { return &s.looks.pty })},
		{names: []string{"progress"}, more: []string{"show-progress"}, family: "Output",
			help: "show a table of the ranks on a terminal, failed and slow ranks first; print lines when standard error is no terminal", set: setSwitch(func(s *settings, on bool) { s.looks.progress = on })},
		{names: []string{"verbose"}, short: "v", family: "Output",
			help: "print on standard error what happens, and which algorithms were chosen; -vv prints more", set: setVerbose(1)},
		{names: []string{"debug-devel"}, short: "d", family: "Output",
			help: "same as -vv", set: setVerbose(2)},
		{names: []string{"debug"}, under: hydra, family: "Output",
			help: "same as -v", set: setVerbose(1)},
		{names: []string{"quiet"}, short: "q", family: "Output",
			help: "print no notes or warnings about the command line, and only the cause of a failure", set: setSwitch(func(s *settings, on bool) { s.quiet = on })},
		{names: []string{"metrics"}, arity: 1, family: "Output", value: "HOST:PORT",
			help: "serve metrics of the job to Prometheus while it runs, at http://HOST:PORT/metrics", set: setMetrics},
		{names: []string{"report-pid"}, arity: 1, family: "Output", value: "-|+|FILE",
			help: "write gorun's process ID to standard output (-), standard error (+) or FILE", set: setReportPID},
	}
}

func setWhen(field func(*settings) *string) func(*settings, string) error {
	return setText(field, "auto, always or never", "auto", "always", "never")
}

// outputWords are those of --output; each may be shortened as long as it is clear.
var outputWords = [...]string{"json", "tag", "tag-detailed", "tag-fullname", "rank", "timestamp", "xml", "merge-stderr-to-stdout", "dir", "directory", "file", "filename"}

// setOutput reads Open MPI 5's list of words. A qualifier follows a colon.
func setOutput(s *settings, value string) error {
	out, stem := &s.job.Output, ""
	for item := range strings.SplitSeq(value, ",") {
		item, qualifier, _ := strings.Cut(item, ":")
		word, text, _ := strings.Cut(item, "=")
		switch outputWord(word) {
		case "json":
			out.Form = launcher.JSON
		case "xml":
			out.Form = launcher.XML
		case "tag", "tag-fullname":
			s.tag = true
		case "tag-detailed":
			s.pattern = "[%G,%r][%h]<%s>:" + s.words().blank
		case "rank":
			s.pattern = s.words().rank
		case "timestamp":
			s.timestamp = true
		case "merge-stderr-to-stdout":
			out.Merge = true
		case "dir", "directory":
			if text == "" {
				return unfit(item, "a directory; try --output dir=logs")
			}
			out.Stdout, out.Stderr = inDirectory(text, s.words().job)
			out.NoCopy = s.words().noCopy
		case "file", "filename":
			if text == "" {
				return unfit(item, "a file; try --output file=log")
			}
			stem = text
			out.Stdout, out.Stderr = byStem(text, s.words().job)
			out.NoCopy = s.words().noCopy
		default:
			switch lower := strings.ToLower(word); {
			case lower == "nocopy", lower == "copy", lower == "raw", lower == "pattern":
				qualifier = word
			case word == "" && qualifier != "": // only a qualifier: of what else is said
			default:
				return unfit(word, "json, tag, rank, timestamp, xml, merge-stderr-to-stdout, dir=DIR or file=FILE")
			}
		}
		for q := range strings.SplitSeq(qualifier, ":") {
			switch strings.ToLower(q) {
			case "":
			case "nocopy", "copy":
				out.NoCopy = strings.EqualFold(q, "nocopy")
			case "raw":
				out.Raw = true
			case "pattern":
				if stem == "" {
					return unfit(q, "it behind a file; try --output file=out.%R:pattern")
				}
				out.Stdout, out.Stderr = stem+".out", stem+".err"
			default:
				return unfit(q, "nocopy, copy, raw or pattern behind the ':'")
			}
		}
	}
	return nil
}

// outputWord is the word that is meant, "" if none or more than one is.
func outputWord(word string) string {
	word = strings.ToLower(word)
	found := ""
	for _, w := range outputWords {
		switch {
		case w == word:
			return w
		case len(word) < 2 || !strings.HasPrefix(w, word):
		case found == "" || strings.HasPrefix(w, found): // dir and directory are one
			found = cmp.Or(found, w)
		default:
			return ""
		}
	}
	return found
}

// outputForm is what one version of Open MPI's launcher makes of lines and files, as scripts parse and find them.
type outputForm struct {
	blank  string // behind a tag
	rank   string // what --output rank puts before a line
	job    string // the job in the name of a file
	noCopy bool   // output that goes to files goes to no terminal
}

// words is that of 4.1, or of 6 for mpirun-6.
func (s *settings) words() outputForm {
	if !isRecent(s.name) {
		return outputForm{rank: launcher.RankPrefix, job: "%G"}
	}
	host, _ := os.Hostname() // without one it is ""
	return outputForm{" ", "[%r]<%s>: ", "prterun-" + strings.ReplaceAll(host, "%", "%%") + "-" + strconv.Itoa(os.Getpid()) + "@%G", true}
}

// inDirectory are the files as Open MPI lays them out, and byStem those whose names begin alike.
func inDirectory(dir, job string) (stdout, stderr string) {
	dir = strings.ReplaceAll(dir, "%", "%%") + "/" + job + "/rank.%R/"
	return dir + "stdout", dir + "stderr"
}

func byStem(stem, job string) (stdout, stderr string) {
	stem = strings.ReplaceAll(stem, "%", "%%") + "." + job + ".%R."
	return stem + "out", stem + "err"
}

func setOutputFilename(s *settings, value string) error {
	dir, qualifiers, _ := strings.Cut(value, ":")
	if dir == "" {
		return unfit(value, "a directory; try --output-filename logs")
	}
	s.job.Output.NoCopy = s.words().noCopy
	if s.job.Output.Stdout, s.job.Output.Stderr = inDirectory(dir, s.words().job); isRecent(s.name) && !strings.HasSuffix(s.spelling, "directory") {
		s.job.Output.Stdout, s.job.Output.Stderr = byStem(dir, s.words().job)
	}
	for q := range strings.FieldsFuncSeq(qualifiers, func(r rune) bool { return r == ',' || r == ':' }) {
		switch strings.ToLower(q) {
		case "nocopy", "copy":
			s.job.Output.NoCopy = strings.EqualFold(q, "nocopy")
		case "nojobid":
			s.job.Output.Stdout = strings.Replace(s.job.Output.Stdout, "/%G/", "/", 1)
			s.job.Output.Stderr = strings.Replace(s.job.Output.Stderr, "/%G/", "/", 1)
		default:
			return unfit(q, "nocopy, copy or nojobid behind the ':'")
		}
	}
	return nil
}

func launcherStdout(o *launcher.Output) *string { return &o.Stdout }
func launcherStderr(o *launcher.Output) *string { return &o.Stderr }

func setFilePattern(field func(*launcher.Output) *string) func(*settings, string) error {
	return func(s *settings, value string) error {
		if value == "" {
			return unfit(value, "a file; try out.%r")
		}
		*field(&s.job.Output) = value
		s.job.Output.NoCopy = true
		return nil
	}
}

func setXMLFile(s *settings, value string) error {
	if value == "" {
		return unfit(value, "a file")
	}
	name := strings.ReplaceAll(value, "%", "%%")
	out := &s.job.Output
	out.Form, out.Stdout, out.Stderr, out.NoCopy = launcher.XML, name, name, true
	return nil
}

func setOutputFrom(s *settings, value string) error {
	s.job.Output.Ranks = []int{}
	for word := range strings.SplitSeq(value, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 {
			return unfit(word, "a rank, or some: 0,3")
		}
		if !slices.Contains(s.job.Output.Ranks, n) {
			s.job.Output.Ranks = append(s.job.Output.Ranks, n)
		}
	}
	return nil
}

func setStdin(s *settings, value string) error {
	s.noStdin = false
	switch value {
	case "all":
		s.job.StdinRank = launcher.StdinAll
		return nil
	case "none":
		s.noStdin = true
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return unfit(value, "a rank, all or none")
	}
	s.job.StdinRank = n
	return nil
}

// finishOutput puts together what stands before each line.
func (s *settings) finishOutput() {
	prefix := s.pattern
	switch {
	case prefix != "" && s.timestamp:
		prefix = "%c " + prefix
	case prefix != "":
	case s.tag && s.timestamp:
		prefix = "%c" + launcher.TagPrefix
	case s.tag:
		prefix = launcher.TagPrefix
	case s.timestamp:
		prefix = "%c<%s>:" // as Open MPI has it
	}
	if isRecent(s.name) && s.pattern == "" && prefix != "" {
		prefix = strings.Replace(prefix, "%c", "[%c]", 1) + " "
	}
	s.job.Output.Prefix = prefix
	_, plain := envvar.Lookup(s.environ, "NO_COLOR")
	term := envvar.Get(s.environ, "TERM")
	s.looks.plain = plain || term == "dumb"
}

// screen fits the job's output to where it goes.
func (l looks) screen(out *launcher.Output, std stdio) {
	terminal := terminalOf(std.out)
	onTerminal := terminal != nil || terminalOf(std.err) != nil
	if onTerminal || out.Form == launcher.Plain {
		out.Prompt, out.PromptAlone = promptSilence, !onTerminal
	}
	switch cmp.Or(l.color, "auto") {
	case "auto":
		out.Color = terminal != nil && !l.plain && out.Prefix != "" && out.Form == launcher.Plain
	case "always":
		out.Color = true
	}
	switch cmp.Or(l.pty, "auto") {
	case "auto":
		if terminal != nil {
			out.Terminal = "auto"
		}
	case "always":
		out.Terminal = "always"
	}
	for _, stream := range []any{std.out, std.err, std.in} {
		if f := terminalOf(stream); f != nil && out.Terminal != "" {
			out.Screen = func() (rows, cols int) { return sizeOf(f) }
			break
		}
	}
}

// promptSilence is how long the begin of a line waits for its end where somebody
// may be looking.
const promptSilence = 200 * time.Millisecond

// terminalOf is a stream that is a terminal; nil if it is none.
func terminalOf(stream any) *os.File {
	f, ok := stream.(*os.File)
	if !ok {
		return nil
	}
	if rows, _ := sizeOf(f); rows < 0 {
		return nil
	}
	return f
}

// sizeOf is the size of a terminal, 0 if it does not know it, -1 if it is none.
func sizeOf(f *os.File) (rows, cols int) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, -1
	}
	rows, cols = -1, -1
	_ = raw.Control(func(fd uintptr) {
		if size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			rows, cols = int(size.Row), int(size.Col)
		}
	})
	return rows, cols
}

func setVerbose(level int) func(*settings, string) error {
	return func(s *settings, value string) error {
		if value != "" {
			return unfit(value, "no value; try -vv for more detail")
		}
		s.verbose += level
		return nil
	}
}

func setReportPID(s *settings, value string) error {
	if value == "" {
		return unfit(value, "-, + or a file")
	}
	s.ends.pidFile = value
	return nil
}
