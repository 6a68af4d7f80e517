package p2p

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// victimEnv tells a process that it is a sender that will be killed; descriptor 3
// is the receiver's memory.
const victimEnv = "P2P_VICTIM"

// quiet is a peer's memory of which nobody has to be told.
type quiet struct{}

func (quiet) Map(uint64, uint32, int, rdma.Access) ([]byte, error) { return nil, rdma.ErrNotSupported }
func (quiet) Notify()                                              {}

// sendInto makes an engine that sends to the receiver whose mapped part is mem.
func sendInto(mem []byte, rank, size int) (*Engine, *peer) {
	g := newGeometry(size)
	e := newEngine()
	e.self.ranks, e.self.credit = ranks{rank: rank, size: size, peers: make([]peer, size)}, make([]uint64, size)
	e.lines.layOut(g, make([]byte, g.end))
	p := &e.self.peers[0]
	p.far = &far{memory: quiet{}, granted: -1, hint: &words(mem[g.inbox-lineSize:][:8])[0],
		inbox: linesOf(mem[g.inbox:g.ring]), rings: linesOf(mem[g.ring:g.ticket])}
	p.depth = g.depth()
	return e, p
}

func mapFile(f *os.File, n int) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

// body is n bytes that tell their length and number.
func body(b []byte, n, number int) []byte {
	for i := range b[:n] {
		b[i] = byte(n + number*7 + i)
	}
	return b[:n]
}

func TestMain(m *testing.M) {
	if how := os.Getenv(victimEnv); how != "" {
		panic(sendForEver(how))
	}
	os.Exit(m.Run())
}

// sendForEver is the sender that is killed: rank 1, through the inbox or through a
// ring.
func sendForEver(how string) error {
	g := newGeometry(3)
	mem, err := mapFile(os.NewFile(3, "memory"), g.end)
	if err != nil {
		return err
	}
	e, p := sendInto(mem, 1, 3)
	if how == "ring" {
		p.far.granted = 0
	}
	taken := &words(mem[:8])[0] // the receiver's count of credits
	os.Stdout.WriteString("go\n")
	b := make([]byte, 4096)
	for i := 0; ; i++ {
		n := 8
		if how == "ring" {
			n = 8 + i%11*40
		}
		env := match.Envelope{Context: 1, Source: 1, Tag: int32(i)}
		for how == "ring" {
			e.self.credit[0] = atomic.LoadUint64(taken)
			if e.lines.sendMapped(p, eager, body(b, n, i), env, 0) {
				break
			}
		}
		for how != "ring" && !e.lines.putInbox(p, eager, uint64(i)<<32|1, 0, body(b, n, i)) {
		}
	}
}

// Senders that are killed at any point, in the middle of a claim or of a message
// among them, hold up neither the receiver nor another sender, and every message
// that arrives is whole, in order and without a gap.
func TestKilledSenders(t *testing.T) {
	testenv.NoLeaks(t)
	rnd := rand.New(rand.NewPCG(1, 4))
	arrived := map[string]int{}
	for round := range 110 {
		how := []string{"inbox", "ring"}[round%2]
		arrived[how] += killSender(t, how, time.Duration(rnd.IntN(1500))*time.Microsecond)
	}
	if arrived["inbox"] < 1000 || arrived["ring"] < 1000 {
		t.Errorf("messages that arrived from the killed: %v, want thousands", arrived)
	}
}

// killSender gives how many messages of the killed sender have arrived.
func killSender(t *testing.T, how string, after time.Duration) int {
	t.Helper()
	g := newGeometry(3)
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(g.end)); err != nil {
		t.Fatal(err)
	}
	mem, err := mapFile(f, g.end)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(mem) }()

	dead := false
	e := newEngine()
	e.self.ranks, e.self.mem, e.self.matches = ranks{rank: 0, size: 3, peers: make([]peer, 3)}, mem, match.New[*Op, arrival](3)
	e.lines.layOut(g, mem)
	e.lines.dead = func(peer int) error {
		if peer == 1 && dead {
			return os.ErrProcessDone
		}
		return nil
	}
	for i := range e.self.peers {
		p := &e.self.peers[i]
		p.rank, p.depth = int32(i), g.depth()
		p.far = &far{memory: quiet{}, credit: new(uint64)}
	}
	e.self.peers[1].far.credit = &words(mem[:8])[0]
	all := linesOf(mem[g.ring:g.ticket])
	e.lines.given = append(e.lines.given, ring{lines: all[:g.ringLines], from: &e.self.peers[1]})

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+how)
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}

	next := [3]int{} // the number of each sender's next message
	want, b := make([]byte, 4096), make([]byte, 4096)
	take := func() {
		e.waits.look()
		for source := 1; source < 3; source++ {
			for m := e.self.matches.Peek(match.Envelope{Context: 1, Source: int32(source), Tag: match.Any}); m != nil; m = e.self.matches.Peek(match.Envelope{Context: 1, Source: int32(source), Tag: match.Any}) {
				e.self.matches.Drop(m)
				n := len(m.Value.data)
				if int(m.Tag) != next[source] || string(m.Value.data) != string(body(want, n, int(m.Tag))) {
					t.Fatalf("%s: message %d of rank %d with %d bytes is not what was sent, or not next (%d)", how, m.Tag, source, n, next[source])
				}
				next[source]++
				e.traffic.release(m)
			}
		}
		for i := range e.self.peers {
			if err := e.self.peers[i].Err(); err != nil {
				t.Fatalf("%s: rank %d: %v", how, i, err)
			}
		}
	}
	other, to := sendInto(mem, 2, 3)
	sent := 0
	send := func() bool {
		ok := other.lines.putInbox(to, eager, uint64(sent)<<32|1, 0, body(b, 8, sent))
		if ok {
			sent++
		}
		to.far.asked = true // no ring
		return ok
	}
	for end := time.Now().Add(after); time.Now().Before(end); {
		send()
		take()
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	dead = true
	// Another sender fills the inbox behind what the dead one has left, twice.
	for goal, end := sent+2*inboxLines, time.Now().Add(time.Minute); next[2] < goal; {
		send()
		e.waits.lookAtClaims()
		take()
		if time.Now().After(end) {
			t.Fatalf("%s: the other sender is stuck after %d of %d messages", how, next[2], goal)
		}
	}
	return next[1]
}
