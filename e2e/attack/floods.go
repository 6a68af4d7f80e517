package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// What a flooded job may take.
const (
	floodTime   = 1500 * time.Millisecond // that it is flooded before its ranks meet; they do so under the flood
	floodLimit  = 20 * time.Second        // from then on to its end
	floodMemory = 96 << 20                // bytes resident at most, of gorun, an agent and gorun-pmix each
	flooders    = 50                      // connections that are begun at a time
	stranger    = 65534                   // a user
)

// floodStyles are what a connection does.
var floodStyles = []string{"close", "reset", "silent", "garbage", "half", "large", "mixed"}

// floodMain connects to an address again and again until its input ends: ADDRESS STYLE.
func floodMain(args []string) int {
	if len(args) != 2 {
		return 2
	}
	var made atomic.Int64
	for i := range flooders {
		go func() {
			rng := rand.New(rand.NewPCG(uint64(i), 0))
			var held []net.Conn
			for {
				c, err := net.DialTimeout("tcp", args[0], time.Second)
				if err != nil {
					time.Sleep(10 * time.Millisecond) // the job is over, or there are no ports any more
					continue
				}
				made.Add(1)
				if held = append(held, c); !annoy(c, args[1], rng) || len(held) > 20 {
					held[0].Close()
					held = held[1:]
				}
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println(made.Load())
	return 0
}

// annoy does one thing with a connection, and tells whether it stays open.
func annoy(c net.Conn, style string, rng *rand.Rand) (held bool) {
	if style == "mixed" {
		style = floodStyles[rng.IntN(len(floodStyles)-1)]
	}
	junk := make([]byte, 64<<10)
	for i := range junk {
		junk[i] = byte(rng.Uint32())
	}
	_ = c.SetDeadline(time.Now().Add(time.Second))
	switch style {
	case "reset":
		_ = c.(*net.TCPConn).SetLinger(0)
	case "silent":
		return true
	case "garbage":
		_, _ = c.Write(junk[:rng.IntN(len(junk))])
	case "half":
		begins := []string{"cmd=initack pmiid=", "GET /metrics HTTP/1.1\r\n", "gorunkey0123", "\x0a\x01\x30"}
		_, _ = io.WriteString(c, begins[rng.IntN(len(begins))])
		return true
	case "large": // as memberlist begins a message of 19 MiB
		_, _ = c.Write([]byte{10, 1, 0x30, 0, 0})
		for range 19 << 20 / len(junk) {
			if _, err := c.Write(junk); err != nil {
				return false
			}
		}
		return true
	}
	return false
}

// flooded is a job and one of its ports. Its ranks write "at.RANK" with what stands in
// at, and meet when there is a file "go".
type flooded struct {
	port string
	args []string // of gorun
	at   string   // for the shell: the port; "": it is found elsewhere
	meet []string
}

// flood floods a port of a job, as this user or another, before and while its ranks meet.
func (b *bench) flood(r *rand.Rand, i int) error {
	rank := []string{filepath.Join(b.bin, "gorun-bench-init")}
	jobs := []flooded{
		{"PMI", []string{"--pmi-port"}, "${PMI_PORT##*:}", rank},
		{"PMIx", nil, "${PMIX_SERVER_URI2##*:}", rank},
		{"metrics", nil, "", rank},
		{"gossip", []string{"--launcher", "fork", "-H", "a:1,b:1"}, "", rank},
	}
	if b.ompi != "" {
		jobs[1].meet = []string{b.ompi, "short"}
	}
	f, style := jobs[r.IntN(len(jobs))], floodStyles[r.IntN(len(floodStyles))]
	other := r.IntN(3) > 0 && os.Getuid() == 0
	port := 0
	if f.port == "metrics" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		port = l.Addr().(*net.TCPAddr).Port
		l.Close()
		f.args = []string{"--metrics", fmt.Sprintf("127.0.0.1:%d", port)}
	}
	script := fmt.Sprintf(`echo "%s" >at.$RANK.new; mv at.$RANK.new at.$RANK; until test -e go; do sleep 0.02; done; exec "$@"`, f.at)
	args := append(append([]string{"--quiet", "-np", "2"}, f.args...), "sh", "-c", script, "sh")
	j, err := b.start(fmt.Sprintf("flood-%d", i), append(args, f.meet...)...)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s of the port of %s", style, f.port)
	if other {
		what += " by a stranger"
	}
	made, most, err := b.floodJob(j, f, port, style, other)
	_ = os.WriteFile(filepath.Join(j.dir, "go"), nil, 0o600) // whatever went wrong
	status, ferr := j.finish()
	if err = errors.Join(err, ferr); err == nil && status != 0 {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return fmt.Errorf("%s, %d connections, %d MiB: %w: %s%s", what, made, most>>20, err, j.out.String(), j.err.String())
	}
	b.did(f.port)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count["connections"] += made
	b.count["MiB at most"] = max(b.count["MiB at most"], most>>20)
	return nil
}

// floodJob floods a job and lets its ranks meet, and tells how many connections there
// were and how much memory one of gorun's processes had at most.
func (b *bench) floodJob(j *job, f flooded, port int, style string, other bool) (made, most int, err error) {
	for rank := range 2 {
		text, err := j.await(fmt.Sprintf("at.%d", rank))
		if err != nil {
			return 0, 0, err
		}
		if n, err := strconv.Atoi(text); err == nil && rank == 0 {
			port = n
		}
	}
	pid := j.cmd.Process.Pid
	if f.port == "gossip" {
		port = gossipPort(pid)
	}
	if port == 0 {
		return 0, 0, errors.New("its port is not found")
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	flooder := exec.Command("/proc/self/exe", "--flood", address, style)
	flooder.Dir, flooder.Stderr = "/", os.Stderr
	flooder.SysProcAttr = &syscall.SysProcAttr{}
	if other {
		flooder.SysProcAttr.Credential = &syscall.Credential{Uid: stranger, Gid: stranger}
	}
	var count strings.Builder
	flooder.Stdout = &count
	end, err := flooder.StdinPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := flooder.Start(); err != nil {
		return 0, 0, err
	}
	defer func() {
		end.Close()
		err = errors.Join(err, flooder.Wait())
		if made, _ = strconv.Atoi(strings.TrimSpace(count.String())); made == 0 && err == nil {
			err = errors.New("the flood has made no connection")
		}
	}()
	time.Sleep(floodTime) // the flood takes its time
	if f.port == "metrics" {
		if err := scrape(address); err != nil {
			return 0, 0, err
		}
	}
	if _, pmix := resident(pid); pmix && other {
		return 0, 0, errors.New("a stranger has started gorun-pmix")
	}
	if err := os.WriteFile(filepath.Join(j.dir, "go"), nil, 0o600); err != nil {
		return 0, 0, err
	}
	limit := time.NewTimer(floodLimit)
	defer limit.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		now, _ := resident(pid)
		most = max(most, now)
		select {
		case <-j.ended:
			if most > floodMemory {
				err = fmt.Errorf("more than %d MiB in memory", floodMemory>>20)
			}
			return made, most, err
		case <-look.C:
		case <-limit.C:
			return made, most, fmt.Errorf("it has not ended %v after its ranks were to meet", floodLimit)
		}
	}
}

// await waits for a file of a job, and gives what is in it.
func (j *job) await(name string) (string, error) {
	for end := time.Now().Add(floodLimit); time.Now().Before(end); time.Sleep(lookEvery) {
		if text, err := os.ReadFile(filepath.Join(j.dir, name)); err == nil {
			return strings.TrimSpace(string(text)), nil
		}
		select {
		case <-j.ended:
			return "", errors.New("it ends before its ranks meet")
		default:
		}
	}
	return "", fmt.Errorf("its ranks do not begin within %v", floodLimit)
}

// scrape asks for the metrics until they come: a connection may be taken for an idle one.
func scrape(address string) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: floodLimit}
	var err error
	for end := time.Now().Add(floodLimit); time.Now().Before(end); {
		var r *http.Response
		if r, err = client.Get("http://" + address + "/metrics"); err != nil {
			continue
		}
		var body []byte
		body, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err == nil && strings.Contains(string(body), "gorun_ranks") {
			return nil
		}
	}
	return fmt.Errorf("nobody answers for the metrics: %w", err)
}

// gossipPort is where an agent of gorun listens: with TCP and UDP; 0: nowhere.
func gossipPort(pid int) int {
	tcp, _ := os.ReadFile("/proc/net/tcp")
	udp, _ := os.ReadFile("/proc/net/udp")
	for _, p := range below(pid)[1:] {
		inodes := map[string]bool{}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p))
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
				inodes[strings.Trim(to, "socket:[]")] = true
			}
		}
		for line := range strings.Lines(string(tcp)) {
			words := strings.Fields(line)
			if len(words) < 10 || words[3] != "0A" || !inodes[words[9]] {
				continue
			}
			_, port, _ := strings.Cut(words[1], ":")
			if n, err := strconv.ParseUint(port, 16, 16); err == nil && strings.Contains(string(udp), ":"+port+" ") {
				return int(n)
			}
		}
	}
	return 0
}

// below are the processes below one, which is the first.
func below(pid int) []int {
	list := []int{pid}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, f := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(f); err == nil {
				list = append(list, below(n)...)
			}
		}
	}
	return list
}

// resident is the most that one of gorun's own processes below one has had in memory, and
// whether gorun-pmix is among them.
func resident(pid int) (most int, pmix bool) {
	for _, p := range below(pid) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
		name, bytes := "", 0
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimSpace(value); key {
			case "Name":
				name = value
			case "VmHWM":
				kb, _ := strconv.Atoi(strings.TrimSuffix(value, " kB"))
				bytes = kb << 10
			}
		}
		switch name {
		case "gorun-pmix":
			pmix = true
			fallthrough
		case "gorun", "gorun-agent":
			most = max(most, bytes)
		}
	}
	return most, pmix
}
