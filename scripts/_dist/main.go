// Command dist packs what make install has put into a directory: a tar archive, a
// .deb, a .rpm and an SBOM of one architecture. The same files give the same bytes.
//
// nfpm and cyclonedx-go write the formats; they are in this module's go.mod, so that
// gorun's own does not grow by them.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
	"github.com/klauspost/compress/gzip"
)

const (
	project = "github.com/gorun-mpi/gorun"
	docs    = "share/doc/gorun/"
)

// A release is what is packed for one architecture.
type release struct {
	version, arch string
	stage         string                          // what make install made, as below /usr
	out           string                          // where the archives go
	time          time.Time                       // of every file
	files         []string                        // in stage, sorted
	commands      map[string]*buildinfo.BuildInfo // by name
	modules       map[string]*debug.Module        // by path
	glibc         int                             // the commands need glibc 2.N; 0: all are static
}

func main() {
	r := release{commands: map[string]*buildinfo.BuildInfo{}, modules: map[string]*debug.Module{}}
	flag.StringVar(&r.version, "version", "", "gorun's `NUMBER`")
	flag.StringVar(&r.arch, "arch", "", "`ARCHITECTURE` in Go's words")
	flag.StringVar(&r.stage, "stage", "", "the `DIRECTORY` that make install had as PREFIX")
	flag.StringVar(&r.out, "out", "", "the `DIRECTORY` for the archives")
	epoch := flag.Int64("time", 0, "of every file, in `SECONDS` since 1970")
	flag.Parse()
	r.time = time.Unix(*epoch, 0).UTC()
	if err := r.pack(); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func (r *release) pack() error {
	if err := r.inspect(); err != nil {
		return err
	}
	if err := r.document(); err != nil {
		return err
	}
	err := filepath.WalkDir(r.stage, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			r.files = append(r.files, strings.TrimPrefix(name, r.stage+"/"))
		}
		return err
	})
	return cmp.Or(err, r.archive(), r.linuxPackage("deb"), r.linuxPackage("rpm"), r.sbom())
}

// inspect reads what the commands say of their builds, and which glibc they need.
func (r *release) inspect() error {
	names, err := filepath.Glob(filepath.Join(r.stage, "bin", "*"))
	if err != nil || len(names) == 0 {
		return fmt.Errorf("found no command in %s/bin, want what make install puts there", r.stage)
	}
	for _, name := range names {
		if filepath.Base(name) == "gorun-cc" { // a script of sh
			continue
		}
		info, err := buildinfo.ReadFile(name)
		if err != nil {
			return err
		}
		r.commands[filepath.Base(name)] = info
		for _, m := range info.Deps {
			r.modules[m.Path] = m
		}
		file, err := elf.Open(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		needs, err := file.DynamicVersionNeeds()
		file.Close()
		if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, library := range needs {
			for _, need := range library.Needs {
				minor := 0 // others than GLIBC_2.N are older
				_, _ = fmt.Sscanf(need.Dep, "GLIBC_2.%d", &minor)
				r.glibc = max(r.glibc, minor)
			}
		}
	}
	return nil
}

// document adds the licenses: that of gorun, and those of the modules that its commands contain.
func (r *release) document() error {
	dir := filepath.Join(r.stage, docs)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"LICENSE", "README.md"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	list := exec.Command("go", append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}\t{{.Dir}}"}, slices.Sorted(maps.Keys(r.modules))...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("%v: %w", list.Args, err)
	}
	text := []byte("gorun's commands contain these modules. Go's standard library has the license of golang.org/x/sys.\n")
	for line := range strings.Lines(string(out)) {
		module, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		names, err := filepath.Glob(filepath.Join(dir, "LICEN[CS]E*"))
		if err != nil || len(names) == 0 {
			return fmt.Errorf("%s: found no LICENSE in %q", module, dir)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text = fmt.Appendf(text, "\n===== %s, %s =====\n\n%s", module, filepath.Base(name), data)
		}
	}
	return os.WriteFile(filepath.Join(dir, "LICENSES.modules"), text, 0o644)
}

// modeOf is the mode of a file, whatever the umask was when it was made.
func modeOf(file string) int64 {
	if strings.HasPrefix(file, "bin/") {
		return 0o755
	}
	return 0o644
}

// archive writes the tar archive. All of it is in one directory, which works wherever it lies.
func (r *release) archive() error {
	name := fmt.Sprintf("gorun-%s-linux-%s", r.version, r.arch)
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	to := tar.NewWriter(zip)
	for _, file := range r.files { // tar makes the directories
		data, err := os.ReadFile(filepath.Join(r.stage, file))
		if err != nil {
			return err
		}
		err = to.WriteHeader(&tar.Header{Name: path.Join(name, file), Mode: modeOf(file), Size: int64(len(data)), ModTime: r.time, Uname: "root", Gname: "root"})
		if err != nil {
			return err
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
	if err := cmp.Or(to.Close(), zip.Close()); err != nil {
		return err
	}
	return r.write(name+".tar.gz", out.Bytes())
}

// linuxPackage writes the .deb or the .rpm, which put the same files below /usr.
func (r *release) linuxPackage(format string) error {
	info := &nfpm.Info{
		Name: "gorun", Arch: r.arch, Version: r.version, Section: "net", Priority: "optional", MTime: r.time,
		Maintainer: "gorun's maintainers <https://" + project + "/issues>", Homepage: "https://" + project, License: "Apache-2.0",
		Description: "launcher and runtime for parallel programs\ngorun starts programs of MPICH, Open MPI, mpi4py and Go, on one host or many, in place of\nmpirun and mpiexec, names the rank that failed first and why, and leaves no rank behind.",
	}
	info.Deb.Compression, info.RPM.Compression = "zstd", "zstd" // dpkg and rpm of any system with that glibc know it
	info.RPM.Summary, info.RPM.BuildHost = "Launcher and runtime for parallel programs", "localhost"
	switch {
	case r.glibc == 0:
		info.Description += "\nThis build has no cgo: programs of Open MPI do not run, and no devices of libibverbs are used."
	case format == "deb":
		info.Depends = []string{fmt.Sprintf("libc6 (>= 2.%d)", r.glibc)}
		info.Recommends = []string{"libpmix2t64 | libpmix2"}
		info.Suggests = []string{"openssh-client", "libibverbs1"}
	default:
		info.Depends = []string{fmt.Sprintf("libc.so.6(GLIBC_2.%d)(64bit)", r.glibc)}
		info.Recommends = []string{"pmix"}
		info.Suggests = []string{"openssh-clients", "libibverbs"}
	}
	for _, file := range r.files {
		to := file
		switch {
		case format == "deb" && file == docs+"LICENSE":
			to = docs + "copyright"
		case format == "deb": // where Debian's zsh looks
			to = strings.Replace(file, "zsh/site-functions", "zsh/vendor-completions", 1)
		}
		info.Contents = append(info.Contents, &files.Content{Source: filepath.Join(r.stage, file), Destination: "/usr/" + to,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: fs.FileMode(modeOf(file)), MTime: r.time}}) // #nosec G115
	}
	// rpm removes its own directories, and those of shells that are not installed, if the package has them; dpkg does by itself.
	for _, dir := range []string{docs, "lib/gorun", "lib/gorun/verbs", "lib/gorun/abi", "lib/gorun/profile", "share/fish", "share/fish/vendor_completions.d", "share/zsh", "share/zsh/site-functions"} {
		info.Contents = append(info.Contents, &files.Content{Type: files.TypeDir, Packager: "rpm", Destination: "/usr/" + dir,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o755, MTime: r.time}})
	}
	info.DisableGlobbing = true
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	name := packager.ConventionalFileName(info)
	if err := packager.Package(info, &out); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return r.write(name, out.Bytes())
}

func (r *release) write(name string, data []byte) error {
	fmt.Printf("dist: %s, %.1f MB\n", name, float64(len(data))/1e6)
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}
