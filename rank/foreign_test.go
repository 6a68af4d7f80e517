package rank_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

func init() {
	programs["size"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error {
			fmt.Println("size", c.Size())
			return nil
		})
	}
	// A rank of another MPI, as far as its environment and its memory show, that starts
	// a program of package rank through a shell.
	programs["another MPI's rank"] = func() {
		dir, err := os.MkdirTemp("", "")
		if err == nil {
			defer os.RemoveAll(dir)
			name := filepath.Join(dir, "libmpi.so.40")
			if err = os.WriteFile(name, make([]byte, os.Getpagesize()), 0o600); err == nil {
				var f *os.File
				if f, err = os.Open(name); err == nil {
					_, err = unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
				}
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		self, _ := os.Executable()
		cmd := exec.Command("sh", "-c", self+"; exit $?")
		cmd.Env = append(os.Environ(), programVariable+"=size")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if cmd.Run() != nil {
			os.Exit(1)
		}
	}
}

func TestFromEnvironForeign(t *testing.T) {
	for _, tt := range []struct {
		name    string
		environ []string
		says    string // "" for a world of one
	}{
		{"nobody", nil, ""},
		{"mpirun", []string{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", "PMIX_RANK=2"}, "Open MPI's launcher has started this process as rank 2 of 4"},
		{"mpirun -np 1", []string{"OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0", "PMIX_RANK=0"}, ""},
		{"prterun", []string{"PMIX_RANK=1", "PMIX_NAMESPACE=x"}, "a PMIx launcher has started this process as rank 1 "},
		{"srun", []string{"SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=2"}, "srun has started this process as rank 0 of 2"},
		{"srun with PMIx", []string{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0", "PMIX_RANK=0"}, "srun --mpi=pmi2"},
		{"sbatch", []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=8", "SLURM_NPROCS=8", "SLURM_PROCID=0", "SLURM_TASK_PID=99"}, ""},
		{"interactive step", []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=8", "SLURM_STEP_ID=4294967290", "SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0"}, ""},
		{"salloc", []string{"SLURM_JOB_ID=7", "SLURM_NTASKS=8", "SLURM_JOB_NUM_NODES=2"}, ""},
		{"override", []string{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", "GORUN_ALONE=1"}, ""},
		{"gorun without PMI", []string{"GORUN_JOB=x", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2"}, ""},
		{"gorun", []string{"PMI_FD=3", "PMI_RANK=2", "PMI_SIZE=4", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", "PMIX_RANK=2"}, ""},
		{"nonsense", []string{"OMPI_COMM_WORLD_SIZE=many", "OMPI_COMM_WORLD_RANK=2"}, ""},
	} {
		env, err := rank.FromEnviron(tt.environ)
		if err != nil || (env.Foreign == "") != (tt.says == "") || !strings.Contains(env.Foreign, tt.says) {
			t.Errorf("%s: got %q, %v; want %q", tt.name, env.Foreign, err, tt.says)
		}
	}
}

func TestInitRefusesForeignLauncher(t *testing.T) {
	testenv.NoLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, program string
		env           []string
		fails         bool
		says          string
	}{
		{"a rank", "size", nil, true, "init: Open MPI's launcher has started this process as rank 1 of 2 "},
		{"override", "size", []string{"GORUN_ALONE=1"}, false, "size 1"},
		{"below a rank of another MPI", "another MPI's rank", nil, false, "size 1"},
	} {
		cmd := exec.Command(self)
		cmd.Env = slices.Concat(os.Environ(), []string{programVariable + "=" + tt.program, "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1"}, tt.env)
		out, err := cmd.CombinedOutput()
		if (err != nil) != tt.fails || !strings.Contains(string(out), tt.says) {
			t.Errorf("%s: %v, %q; want %q", tt.name, err, out, tt.says)
		}
	}
}
