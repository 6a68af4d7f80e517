package rank_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/pmi"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// Encryption is asked for, and a program without it joins nothing, nor one whose device does not encrypt.
func TestInitRefusesWithoutEncryption(t *testing.T) {
	secure := func(io.ReadWriter, []byte, string, bool) (soft.Sealer, error) { return nil, errors.New("not called") }
	for name, c := range map[string]struct {
		cfg  rank.Config
		want string
	}{
		"no hook":        {rank.Config{}, "add Secure: softtls.Handshake to its rank.Config, of package github.com/gorun-mpi/gorun/rdma/soft/softtls"},
		"another device": {rank.Config{Secure: secure, Devices: []string{"mlx5_0"}, Providers: []rdma.Provider{foreignProvider{"mlx5_0"}}}, "device mlx5_0 does not encrypt: expected a software device (soft0)"},
	} {
		c.cfg.Environment = &rank.Environment{SegmentFD: -1, LocalSize: 1, Secure: true}
		if _, err := rank.Init(context.Background(), c.cfg); !errors.Is(err, rank.ErrArgument) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	w, err := rank.Init(context.Background(), rank.Config{Environment: &rank.Environment{SegmentFD: -1, LocalSize: 1, Secure: true}, Secure: secure})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finalize(context.Background()); err != nil {
		t.Error(err)
	}
}

// A rank whose calls are recorded says why it cannot join, as any other.
func TestInitFailsWhileRecorded(t *testing.T) {
	env := &rank.Environment{SegmentFD: 999, LocalSize: 1, Gorun: true, Profile: filepath.Join(t.TempDir(), "record")}
	if _, err := rank.Init(context.Background(), rank.Config{Environment: env}); err == nil || !strings.Contains(err.Error(), "init: ") {
		t.Errorf("got %v, want an error of init", err)
	}
}

// foreignProvider is a provider with one device.
type foreignProvider struct{ name string }

func (n foreignProvider) Name() string { return "foreign" }
func (n foreignProvider) Close() error { return nil }
func (n foreignProvider) Devices() ([]rdma.Device, error) {
	return []rdma.Device{lone{name: n.name}}, nil
}

type lone struct {
	rdma.Device
	name string
}

func (l lone) Name() string { return l.name }

func TestFromEnviron(t *testing.T) {
	server := &pmi.Env{FD: 5, Rank: 2, Size: 4}
	cards := &pmi.Env{FD: 5, Rank: 2, Size: 4, Cards: true}
	for _, tt := range []struct {
		name    string
		environ string // separated by blanks
		want    rank.Environment
		err     string
	}{
		{"nothing", "HOME=/", rank.Environment{SegmentFD: -1, LocalSize: 1}, ""},
		{"a PMI launcher", "PMI_FD=5 PMI_RANK=2 PMI_SIZE=4", rank.Environment{PMI: server, SegmentFD: -1, LocalSize: 1}, ""},
		{"gorun", "PMI_FD=5 PMI_RANK=2 PMI_SIZE=4 GORUN_PMI=cards GORUN_JOB=7 GORUN_HOST=a GORUN_HOST_INDEX=1 GORUN_LOCAL_RANK=0 GORUN_LOCAL_SIZE=2 GORUN_SEGMENT=6 GORUN_CPUS=8 GORUN_EMULATE=x,y",
			rank.Environment{PMI: cards, Gorun: true, Job: "7", Host: "a", HostIndex: 1, LocalSize: 2, SegmentFD: 6, CPUs: 8, Emulate: []string{"x", "y"}}, ""},
		{"another launcher's job inside gorun's", "PMI_FD=5 PMI_RANK=2 PMI_SIZE=4 GORUN_EMULATE=x", rank.Environment{PMI: server, SegmentFD: -1, LocalSize: 1, Emulate: []string{"x"}}, ""},
		{"a selection table", "GORUN_TUNING=/a/b", rank.Environment{SegmentFD: -1, LocalSize: 1, Tuning: "/a/b"}, ""},
		{"a budget for queue pairs", "GORUN_QP_MEMORY=64M", rank.Environment{SegmentFD: -1, LocalSize: 1, QPMemory: 64 << 20}, ""},
		{"a budget in other units", "GORUN_QP_MEMORY=3GiB", rank.Environment{SegmentFD: -1, LocalSize: 1, QPMemory: 3 << 30}, ""},
		{"a budget in bytes", "GORUN_QP_MEMORY=4097", rank.Environment{SegmentFD: -1, LocalSize: 1, QPMemory: 4097}, ""},
		{"a budget of nothing", "GORUN_QP_MEMORY=0", rank.Environment{SegmentFD: -1, LocalSize: 1, QPMemory: -1}, ""},
		{"a budget that is none", "GORUN_QP_MEMORY=much", rank.Environment{}, "GORUN_QP_MEMORY=much: expected a number of bytes, such as 4096, 64K, 256M or 2G"},
		{"a budget of less than nothing", "GORUN_QP_MEMORY=-1", rank.Environment{}, "GORUN_QP_MEMORY=-1: expected"},
		{"a budget in no unit", "GORUN_QP_MEMORY=5i", rank.Environment{}, "GORUN_QP_MEMORY=5i: expected"},
		{"a budget of too much", "GORUN_QP_MEMORY=99999999T", rank.Environment{}, "GORUN_QP_MEMORY=99999999T: expected"},
		{"encryption", "GORUN_SECURE=1", rank.Environment{SegmentFD: -1, LocalSize: 1, Secure: true}, ""},
		{"encryption, misspelt", "GORUN_SECURE=tls", rank.Environment{}, "GORUN_SECURE=tls: expected 1 or 0"},
		{"a launcher that decides about hosts", "PMI_FD=5 PMI_RANK=2 PMI_SIZE=4 GORUN_JOB=7 GORUN_HOST_LEASE=1m30s", rank.Environment{PMI: server, Gorun: true, Job: "7", SegmentFD: -1, LocalSize: 1, HostLease: 90 * time.Second}, ""},
		{"a launcher that decides at once", "PMI_FD=5 PMI_RANK=2 PMI_SIZE=4 GORUN_JOB=7 GORUN_HOST_LEASE=0s", rank.Environment{}, "GORUN_HOST_LEASE=0s: expected a time such as 4s"},
		{"no PMI server", "GORUN_JOB=7 GORUN_LOCAL_RANK=9", rank.Environment{Job: "7", SegmentFD: -1, LocalSize: 1}, ""},
		{"a rank that is none", "PMI_FD=5 PMI_RANK=x PMI_SIZE=4", rank.Environment{}, "PMI_RANK=x"},
		{"a local size that is none", "PMI_FD=5 PMI_RANK=2 PMI_SIZE=4 GORUN_JOB=7 GORUN_LOCAL_SIZE=0", rank.Environment{}, "GORUN_LOCAL_SIZE=0: expected a number of at least 1"},
		{"a local rank too large", "PMI_FD=5 PMI_RANK=2 PMI_SIZE=4 GORUN_JOB=7 GORUN_LOCAL_RANK=2 GORUN_LOCAL_SIZE=2", rank.Environment{}, "GORUN_LOCAL_RANK=2 is not below GORUN_LOCAL_SIZE=2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := rank.FromEnviron(strings.Fields(tt.environ))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q in it", err, tt.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

// A launcher other than gorun hears nothing that it does not know.
func TestServerIsToldOfEncryptionByGorun(t *testing.T) {
	for environ, want := range map[string]bool{
		"PMI_FD=5 PMI_RANK=2 PMI_SIZE=4 GORUN_SECURE=1":             false,
		"PMI_FD=5 PMI_RANK=2 PMI_SIZE=4 GORUN_JOB=7 GORUN_SECURE=1": true,
		"PMI_FD=5 PMI_RANK=2 PMI_SIZE=4 GORUN_JOB=7":                false,
	} {
		env, err := rank.FromEnviron(strings.Fields(environ))
		if err != nil {
			t.Fatal(err)
		}
		if got := env.Server(); got.Secure != want || got.Rank != 2 || env.PMI.Secure {
			t.Errorf("%s: got %+v, want Secure %t; the environment's own has %t", environ, got, want, env.PMI.Secure)
		}
	}
}

func TestTuning(t *testing.T) {
	testenv.NoLeaks(t)
	dir := t.TempDir()
	table := coll.DefaultTable()
	if err := table.Set(coll.Bcast, 1, coll.Rule{Algorithm: coll.Direct}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, text, err string
	}{
		{"good", string(table.Bytes()), ""},
		{"bad", "{\n\"rules\": {\"bcastt\": []}}", "bad: selection table: line 2: unknown collective \"bcastt\""},
		{"none", "", "GORUN_TUNING: open "},
	} {
		path := filepath.Join(dir, tt.name)
		if tt.text != "" {
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w, err := rank.Init(t.Context(), rank.Config{Environment: &rank.Environment{Tuning: path}})
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: got %v, want %q in it", tt.name, err, tt.err)
			}
			continue
		}
		if err == nil {
			err = errors.Join(rank.Barrier(t.Context(), w.Comm()), w.Finalize(t.Context()))
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestDevices(t *testing.T) {
	testenv.NoLeaks(t)
	env := rank.Environment{Emulate: []string{"mlx5_0", "mlx5_1"}}
	for _, tt := range []struct {
		name    string
		devices []string
		want    []string // by rank
		err     string
	}{
		{"none named", nil, []string{"mlx5_0", "mlx5_0", "mlx5_0"}, ""},
		{"one", []string{"mlx5_1"}, []string{"mlx5_1", "mlx5_1", "mlx5_1"}, ""},
		{"two", []string{"mlx5_1", "mlx5_0"}, []string{"mlx5_1", "mlx5_1", "mlx5_0"}, ""},
		{"unknown", []string{"nosuch"}, nil, `no RDMA device "nosuch": there is mlx5_0 (soft), mlx5_1 (soft) (gorun --emulate nosuch`},
		{"the second unknown", []string{"mlx5_0", "nosuch"}, nil, `no RDMA device "nosuch"`},
		{"three", []string{"mlx5_0", "mlx5_1", "mlx5_0"}, nil, "3 devices are named"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := rank.Config{Environment: &env, Devices: tt.devices}
			err := rank.FindDevices(cfg)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("FindDevices: %v, want %q", err, tt.err)
				}
				_, err = rank.Init(t.Context(), cfg)
				e, ok := errors.AsType[*rank.Error](err)
				if !ok || e.Op != "init" || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("Init: %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Error(err)
			}
			var mu sync.Mutex
			var log strings.Builder
			cfg.Log = func(line string) {
				mu.Lock()
				defer mu.Unlock()
				log.WriteString(line)
			}
			rc := rank.RunConfig{Config: cfg}
			if err := rc.Run(t.Context(), len(tt.want), func(ctx context.Context, c *rank.Comm) error {
				want := rank.DeviceInfo{Name: tt.want[c.Rank()], Provider: "soft", OneSided: true}
				if tt.devices == nil {
					want.Mapped = len(tt.want) - 1 // a device that was named gets all the traffic
				}
				if got := c.World().Device(); got != want {
					return fmt.Errorf("device %+v, want %+v", got, want)
				}
				return collectives[uint8](ctx, c)
			}); err != nil {
				t.Error(err)
			}
			if tt.devices == nil != strings.Contains(log.String(), "2 of 2 other ranks through mapped memory") {
				t.Errorf("log: %s", &log)
			}
		})
	}
}

// The counters of an all-to-all are what can be worked out by hand.
func TestCounters(t *testing.T) {
	testenv.NoLeaks(t)
	for _, verbs := range []bool{true, false} {
		t.Run(fmt.Sprintf("verbs=%v", verbs), func(t *testing.T) { testCounters(t, verbs) })
	}
}

func testCounters(t *testing.T, verbs bool) {
	const calls, n = 10, 4
	rc := rank.RunConfig{Config: rank.Config{Verbs: verbs}}
	err := rc.Run(t.Context(), n, func(ctx context.Context, c *rank.Comm) error {
		send, recv := make([]int32, 2*n), make([]int32, 2*n)
		before := c.World().Counters()
		for range calls {
			if err := rank.AlltoallWith(ctx, c, send, recv, coll.Direct); err != nil {
				return err
			}
		}
		after := c.World().Counters()
		got := [...]uint64{after.Collective.Calls - before.Collective.Calls, after.Collective.Puts - before.Collective.Puts,
			after.Collective.PutBytes - before.Collective.PutBytes, after.Collective.Copies - before.Collective.Copies,
			after.Collective.CopyBytes - before.Collective.CopyBytes}
		if want := [...]uint64{calls, calls * (n - 1), calls * (n - 1) * 8, calls, calls * 8}; got != want {
			return fmt.Errorf("calls, puts, their bytes, copies, their bytes: %v, want %v", got, want)
		}
		writes, all := after.Device.Writes-before.Device.Writes, after.Collective.Writes()-before.Collective.Writes()
		if !verbs {
			all = 0 // stores instead
		}
		if writes != all {
			return fmt.Errorf("the device counted %d writes, want %d", writes, all)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
