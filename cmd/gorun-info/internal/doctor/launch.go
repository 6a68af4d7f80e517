package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// answer is how long a program may take to tell its version.
const answer = 5 * time.Second

// ask runs a program that is to say something of itself.
func (v *View) ask(ctx context.Context, argv ...string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	stdout, stderr, err := v.Run(ctx, argv...)
	return stdout + stderr, err
}

// Spoken is the version in what --version of one of gorun's programs says:
// "gorun 0.1.0 COMMIT, go1.26 ...", "gorun-agent of gorun 0.1.0 ...": all from the
// number on to the comma, so that builds of different commits differ.
func Spoken(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	_, after, ok := strings.Cut(line, "gorun ")
	if !ok {
		return ""
	}
	after, _, _ = strings.Cut(after, ",")
	return strings.TrimSpace(after)
}

// programs are gorun's: gorun-info should stand beside them.
func programs(ctx context.Context, v *View) Finding {
	const fix = "make build, and install all of bin/ into one directory"
	var lacking, other []string
	for _, name := range [...]string{"gorun", "gorun-agent"} {
		file := path.Join(v.Beside, name)
		if !v.executable(file) {
			lacking = append(lacking, name)
			continue
		}
		text, err := v.ask(ctx, file, "--version")
		if err != nil {
			return problem(fix, "%s --version: %v", file, err)
		}
		if Spoken(text) != v.Version {
			other = append(other, fmt.Sprintf("%s is %q", name, Spoken(text)))
		}
	}
	switch {
	case lacking != nil:
		return problem(fix, "no %s in %s", strings.Join(lacking, ", no "), v.Beside)
	case other != nil:
		return problem(fix, "%s, and gorun-info is %q", strings.Join(other, ", "), v.Version)
	}
	if first := v.program("gorun"); first != "" && first != path.Join(v.Beside, "gorun") {
		return note("export PATH="+shellWord(v.Beside)+":$PATH", "gorun and gorun-agent in %s, %s; but PATH finds %s", v.Beside, v.Version, first)
	}
	return ok("gorun and gorun-agent in %s, %s", v.Beside, v.Version)
}

// launch starts a job that does nothing.
func launch(ctx context.Context, v *View) Finding {
	gorun := path.Join(v.Beside, "gorun")
	if !v.executable(gorun) {
		return note("make build, and install all of bin/ into one directory", "not tried: no gorun in %s", v.Beside)
	}
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	_, stderr, err := v.Run(ctx, gorun, "-np", "2", "true")
	if err != nil {
		return problem(shellWord(gorun)+" -vv -np 2 true", "gorun -np 2 true: %v: %s", err, lastLine(stderr))
	}
	return ok("gorun -np 2 true has run")
}

// lastLine is the last line of a text that says anything.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

func pmix(ctx context.Context, v *View) Finding {
	p := v.PMIx(ctx)
	if p.Problem == "" {
		return ok("libpmix %s (%s), %s", p.Version, p.Library, p.Helper)
	}
	fix := "apt-get install libpmix2"
	if !p.Exists || !p.Cgo {
		fix = "apt-get install gcc libc6-dev && make build (puts gorun-pmix beside gorun)"
	}
	for _, m := range v.launchers(ctx) {
		if m.flavour == openMPI {
			return problem(fix, "Open MPI is installed, but gorun cannot serve its programs: %s", p.Problem)
		}
	}
	return note(fix, "programs of Open MPI cannot be served: %s", p.Problem)
}

// The families of MPIs.
const (
	openMPI = "Open MPI"
	mpich   = "MPICH"
	intel   = "Intel MPI"
	ours    = "gorun"
)

// tool is a launcher or a compiler of an MPI.
type tool struct {
	file, flavour, version string
}

func (t tool) String() string {
	return strings.TrimSpace(t.flavour+" "+t.version) + " (" + t.file + ")"
}

// elsewhere are directories in which distributions keep MPIs that are not in
// PATH until a module is loaded.
var elsewhere = [...]string{"/usr/lib64/openmpi/bin", "/usr/lib64/mpich/bin", "/usr/lib64/mpi/gcc/openmpi4/bin", "/usr/lib64/mpi/gcc/mpich/bin", "/opt/intel/oneapi/mpi/latest/bin"}

// launchers are those of the MPIs that are installed, one of each kind and
// version.
func (v *View) launchers(ctx context.Context) []tool {
	var files []string
	for _, name := range [...]string{"mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.mpich", "mpiexec.hydra"} {
		if file := v.program(name); file != "" {
			files = append(files, file)
		}
	}
	for _, dir := range elsewhere {
		if file := path.Join(dir, "mpiexec"); v.executable(file) {
			files = append(files, file)
		}
	}
	var list []tool
	for _, file := range files {
		if t := v.launcher(ctx, file); t.flavour != "" && !slices.ContainsFunc(list, func(o tool) bool { return o.flavour == t.flavour && o.version == t.version }) {
			list = append(list, t)
		}
	}
	return list
}

// launcher is what a launcher says of itself. Several checks want to know, and it is asked once.
func (v *View) launcher(ctx context.Context, file string) tool {
	says, _ := v.asked.LoadOrStore(file, sync.OnceValue(func() tool { return v.askLauncher(ctx, file) }))
	return says.(func() tool)()
}

func (v *View) askLauncher(ctx context.Context, file string) tool {
	text, err := v.ask(ctx, file, "--version")
	t := tool{file: file}
	if err != nil {
		return t
	}
	first, _, _ := strings.Cut(text, "\n")
	switch {
	case strings.HasPrefix(first, "gorun "):
		t.flavour, t.version = ours, strings.Fields(first)[1]
	case strings.Contains(first, "(Open MPI)"), strings.Contains(first, "(OpenRTE)"), strings.Contains(first, "(PRRTE)"):
		t.flavour = openMPI
		_, t.version, _ = strings.Cut(first, ") ")
	case strings.Contains(text, "Intel(R) MPI Library"):
		t.flavour = intel
		_, rest, _ := strings.Cut(text, "Version ")
		t.version, _, _ = strings.Cut(strings.ReplaceAll(rest, "\n", " "), " ")
	case strings.Contains(text, "HYDRA"):
		t.flavour = mpich
		if _, rest, found := strings.Cut(text, "Version:"); found {
			rest, _, _ = strings.Cut(rest, "\n")
			t.version = strings.TrimSpace(rest)
		}
	}
	return t
}

// compiler asks a compiler whose library it links.
func (v *View) compiler(ctx context.Context, file string) tool {
	t := tool{file: file}
	text, err := v.ask(ctx, file, "-show")
	switch {
	case err != nil:
	case strings.Contains(text, "openmpi"), strings.Contains(text, "open-mpi"):
		t.flavour = openMPI
	case strings.Contains(text, "impi"), strings.Contains(text, "intel"):
		t.flavour = intel
	case strings.Contains(text, "mpich"):
		t.flavour = mpich
	}
	return t
}

func mpis(ctx context.Context, v *View) Finding {
	found := v.MPIs(ctx)
	if found == nil {
		return note("apt-get install mpich libmpich-dev (or openmpi-bin libopenmpi-dev)", "none; gorun runs Go programs of package rank, and C programs built by gorun-cc, without one")
	}
	return ok("%s", strings.Join(found, ", "))
}

// bare tells which MPI mpicc, mpirun and mpiexec are without more words.
func bare(ctx context.Context, v *View) Finding {
	file := v.program("mpicc")
	if file == "" {
		return note("apt-get install libmpich-dev (or libopenmpi-dev)", "no mpicc: only gorun-cc builds C programs here, for gorun's own MPI")
	}
	cc := v.compiler(ctx, file)
	if cc.flavour == "" {
		return note(shellWord(file)+" -show", "%s does not say to which MPI it belongs", file)
	}
	found := "mpicc is " + cc.flavour + "'s (" + file + v.alternative("mpi") + ")"
	var wrong []string
	for _, name := range [...]string{"mpirun", "mpiexec"} {
		file := v.program(name)
		if file == "" {
			continue
		}
		t := v.launcher(ctx, file)
		if t.flavour == "" {
			continue
		}
		found += ", " + name + " " + t.flavour + "'s"
		if t.flavour != ours && t.flavour != cc.flavour && (t.flavour == openMPI || cc.flavour == openMPI) {
			wrong = append(wrong, name)
		}
	}
	if wrong != nil {
		return problem("update-alternatives --config mpi; update-alternatives --config mpirun (or start with gorun, which serves both)", "%s: %s cannot start what mpicc builds", found, strings.Join(wrong, " and "))
	}
	return ok("%s", found)
}

// alternative is what Debian's alternatives have chosen for a name.
func (v *View) alternative(name string) string {
	target, err := fs.ReadLink(v.Root, "etc/alternatives/"+name)
	if err != nil {
		return ""
	}
	return ", by the alternative " + name + ": " + target
}

// MPIs are the launchers of the MPIs that are installed.
func (v *View) MPIs(ctx context.Context) []string {
	var list []string
	for _, t := range v.launchers(ctx) {
		if t.flavour != ours {
			list = append(list, t.String())
		}
	}
	return list
}
