# Everything one does with gorun's sources. `make help` lists the targets.
SHELL := /bin/bash
GO    ?= go
# gorun is a static binary; race builds need cgo, and say so themselves.
export CGO_ENABLED ?= 0

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 20s
# gorun looks at its limits before Go's runtime does: internal/prelude.
PRELUDE = $(if $(filter linux/amd64,$(shell $(GO) env GOOS)/$(shell $(GO) env GOARCH)),-ldflags '-E github.com/gorun-mpi/gorun/internal/prelude.enter')

# go build asks git which commit it builds. Where git refuses to say, as in a checkout of
# another user, go build would fail: the commit is left out then.
ifeq ($(findstring buildvcs,$(GOFLAGS)),)
ifneq ($(shell [ ! -e .git ] || ! command -v git >/dev/null || git rev-parse 2>/dev/null && echo fine),fine)
$(info git refuses this checkout, which may be another user's: commands are built without their commit's name; to have it: git config --global --add safe.directory $(CURDIR))
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -buildvcs=false)
endif
endif

.PHONY: help
help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# make dist builds for another architecture into BIN, and has the commands in RUN print the pages.
BIN ?= bin
RUN ?= $(BIN)

.PHONY: build
build: ## build every command into bin/
	@mkdir -p $(BIN)
	$(GO) build -trimpath -o $(BIN)/ ./cmd/...
	CGO_ENABLED=0 $(GO) build -trimpath $(PRELUDE) -o $(BIN)/ ./cmd/gorun
	@scripts/build-pmix $(BIN)
	@scripts/build-verbs $(BIN)
	@scripts/build-dropin $(BIN)/verbs
	@scripts/build-abi $(BIN)
	@scripts/build-profile $(BIN)

.PHONY: man
man: build ## the manual pages, bin/gorun.1, bin/gorun-info.1, bin/gorun-bench.1 and bin/gorun-verbs.1
	$(RUN)/gorun --man >$(BIN)/gorun.1
	$(RUN)/gorun-info --man >$(BIN)/gorun-info.1
	$(RUN)/gorun-bench --man >$(BIN)/gorun-bench.1
	$(RUN)/gorun-verbs --man >$(BIN)/gorun-verbs.1

PREFIX ?= /usr/local
COMMANDS = $(filter-out internal,$(notdir $(wildcard cmd/*))) a2a-secure a2a-verbs gorun-cc
SHARE = $(DESTDIR)$(PREFIX)/share
COMPLETED = gorun gorun-info

.PHONY: install
install: man ## every command, the manual pages and completions into PREFIX (/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin $(addprefix $(SHARE)/,man/man1 bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	install -m 755 $(wildcard $(addprefix $(BIN)/,$(COMMANDS))) $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(BIN)/gorun.1 $(BIN)/gorun-info.1 $(BIN)/gorun-bench.1 $(BIN)/gorun-verbs.1 $(SHARE)/man/man1
	[ ! -e $(BIN)/verbs/libibverbs.so.1 ] || { install -d $(DESTDIR)$(PREFIX)/lib/gorun/verbs && install -m 755 $(BIN)/verbs/*.so* $(DESTDIR)$(PREFIX)/lib/gorun/verbs; }
	[ ! -e $(BIN)/abi/libmpi_abi.so.1 ] || { install -d $(DESTDIR)$(PREFIX)/lib/gorun/abi && install -m 755 $(BIN)/abi/*.so* $(DESTDIR)$(PREFIX)/lib/gorun/abi && install -m 644 $(BIN)/abi/mpi.h $(DESTDIR)$(PREFIX)/lib/gorun/abi; }
	[ ! -e $(BIN)/profile/libgorun-profile.so ] || { install -d $(DESTDIR)$(PREFIX)/lib/gorun/profile && install -m 755 $(BIN)/profile/*.so $(DESTDIR)$(PREFIX)/lib/gorun/profile; }
	set -e; for name in $(COMPLETED); do \
		$(RUN)/$$name --completion bash >$(SHARE)/bash-completion/completions/$$name; \
		$(RUN)/$$name --completion zsh >$(SHARE)/zsh/site-functions/_$$name; \
		$(RUN)/$$name --completion fish >$(SHARE)/fish/vendor_completions.d/$$name.fish; \
	done

.PHONY: dist
dist: ## archives, packages, checksums and SBOMs for amd64 and arm64, into bin/dist (ARCHS="amd64 arm64")
	@scripts/dist bin/dist $(ARCHS)

.PHONY: demo
demo: build ## the main job: four ranks, all-to-all on the software device
	bin/gorun -np 4 bin/a2a -m 32

.PHONY: layout
layout:
	@files=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$files" ] || { echo "gofmt -w $$files"; exit 1; }
	$(GO) vet ./...

# The packages whose tests take longer: make check leaves them to make test.
SLOW := e2e(/.*)?|testdata(/.*)?|cmd/(a2a|allreduce/internal/group|gorun-bench)|coll|internal/(prelude|wait)|launcher|internal/gossip|pmi|rank|rank/internal/p2p|rdma/(rdmatest|soft|verbs)

.PHONY: check
check: layout ## before a commit, under a minute: format, vet, imports, words, the tests that are quick
	$(GO) test -short $$($(GO) list ./... | grep -vE 'gorun/($(SLOW))$$')

# These take the longest, and begin first.
LONGEST := ./rdma/soft ./rank ./launcher ./e2e

.PHONY: test
test: ## the tests that need nothing but Go (five to ten minutes on two cores); make test-all has the rest
	$(GO) test -short -vet=off -ldflags=-w -timeout 20m $(TESTFLAGS) $(LONGEST) ./...

# Each part runs alone, by its name, in at most ten minutes, and installs what it needs (scripts/test-deps).
PARTS := peers tools hosts batch large faults timed results dist apps
LONG  := long-rank long-coll long-rdma long-launcher long-pmi long-internal
export GOTESTSUM := gotest.tools/gotestsum@v1.13.0

.PHONY: test-all $(PARTS:%=test-%) $(LONG:%=test-%)
test-all: test test-rxe $(PARTS:%=test-%) $(LONG:%=test-%) ## all tests, part after part (an hour and a half; as root); installs through apt what they need, 3.7 GB
test-peers: ## programs and launchers of MPICH, Open MPI, mpi4py and Slurm's PMI-2 library
test-tools: ## what other programs make of gorun's output: shells, groff, a browser, the Go toolchain
test-hosts: ## several hosts, with ssh, in namespaces of this machine (as root)
test-batch: ## a Slurm and a gridengine, on such hosts (as root)
test-large: ## jobs of hundreds of ranks, a thousand jobs
test-faults: ## random faults, floods, and deaths at random moments
test-timed: ## what holds a bound of time, and can only be told by a clock
test-results: ## gorun-bench and make results, quickly
test-dist: ## make dist, and what it made, installed in a root of its own (as root)
test-apps: ## applications of Debian by their own launcher and by gorun, in a root of trixie (as root)
test-long-rank test-long-coll test-long-rdma test-long-launcher test-long-pmi test-long-internal: ## a library's tests with all repetitions
# ARGS= has test-hosts try one case of each kind, as CI does.
ARGS = $(if $(filter hosts batch,$*),-args -all)
$(PARTS:%=test-%) $(LONG:%=test-%): test-%:
	@scripts/test-deps $*
	@scripts/test-part $* $(ARGS)

.PHONY: apps
apps: test-apps ## the same

.PHONY: test-rxe
test-rxe: ## real verbs: Soft-RoCE in a virtual machine (QEMU, no KVM)
	@scripts/test-deps rxe
	@scripts/test-part rxe

.PHONY: fresh
fresh: ## README's commands in minimal Debian roots, the peers' tests in unstable (as root; FRESH="trixie user" limits it)
	@scripts/fresh $(FRESH)

.PHONY: race
race: ## the tests of the libraries under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -short ./internal/... ./rdma/... ./coll/... ./pmi/... ./rank/... ./launcher/...

.PHONY: race-quick
race-quick: ## those of them that CI runs
	CGO_ENABLED=1 $(GO) test -race -short $$($(GO) list ./internal/... | grep -vE '/(layers|prelude|wait)$$') ./rdma ./rdma/dpa ./pmi ./rank/internal/match ./rank/internal/rma ./rank/internal/peers/... ./launcher/internal/hub ./launcher/internal/sidecar ./launcher/internal/stdio

.PHONY: test-offload
test-offload: ## the suites of rank and coll with progress threads, and under the race detector (20 minutes; needs a C compiler)
	GORUN_ASYNC_PROGRESS=on $(GO) test -count=1 -timeout 15m ./coll ./rank/...
	GORUN_ASYNC_PROGRESS=on CGO_ENABLED=1 $(GO) test -race -short -count=1 -timeout 30m ./coll ./rank

.PHONY: hosts-table
hosts-table: ## the table of faults in docs/hosts.md
	@scripts/test-deps hosts
	TEST_PARTS=hosts $(GO) test -count=1 -timeout 20m -run TestFaults ./e2e/hosts -args -all -update

.PHONY: bench-hosts
bench-hosts: ## gorun beside Hydra, MPICH and Open MPI over hosts, into docs/hosts.md (as root; about seven minutes)
	@scripts/test-deps hosts
	TEST_PARTS=hosts $(GO) test -count=1 -timeout 20m -run '^$$' -bench Hosts -benchtime 1x ./e2e/hosts -args -update

.PHONY: scale
scale: ## what docs/scale.md has: 128 agents and 1,024 ranks, 256 members, and all that is simulated (a quarter of an hour, 15 GB)
	TEST_PARTS=large $(GO) test -count=1 -timeout 5m -v -run TestManyAgents ./launcher -all
	TEST_PARTS=large $(GO) test -count=1 -timeout 10m -v -run TestManyHosts ./internal/gossip -all
	$(GO) test -count=1 -timeout 20m -run TestBootstrapPage ./internal/gossip -all
	$(GO) test -count=1 -timeout 30m -run TestPage ./coll/sim -all

.PHONY: scale-page
scale-page: ## the simulated tables and the plots of docs/scale.md anew
	$(GO) test -count=1 -timeout 20m -run TestBootstrapPage ./internal/gossip -update -all
	$(GO) test -count=1 -timeout 30m -run TestPage ./coll/sim -update -all

.PHONY: cross
cross: ## build and vet for arm64, compiled as make dist does
	GOARCH=arm64 $(GO) build -trimpath ./...
	GOARCH=arm64 $(GO) vet -trimpath ./...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (20s), and how many inputs each was given
	@FUZZTIME=$(FUZZTIME) GO=$(GO) scripts/fuzz

SEED   ?= 1
KILLS  ?= 1000
CAUSES ?= 300
FLOODS ?= 100

.PHONY: attack
attack: build ## kills, deaths across hosts, floods (SEED=1 KILLS=1000 CAUSES=300 FLOODS=100); one wrong result fails
	@scripts/test-deps faults
	$(GO) build -o bin/ ./e2e/attack
	bin/attack -bin bin -seed $(SEED) -kills $(KILLS) -causes $(CAUSES) -floods $(FLOODS)

.PHONY: bench
bench: ## gorun beside MPICH and Open MPI, then the micro-benchmarks
	@scripts/test-deps results
	@$(MAKE) --no-print-directory build
	bin/gorun-bench --quick
	bin/gorun-bench -b launch,launch_limit,init_limit,init_mpich,init_openmpi -n 1,4,16,64 -r 20 -i 1 --compare mpich,openmpi
	bin/gorun-bench -b output -n 4 -r 3 -i 1 --compare mpich,openmpi
	$(GO) test -run '^$$' -bench Start -benchtime 20x ./cmd/a2a
	$(GO) test -run '^$$' -bench . -benchtime 200ms ./internal/... ./rdma/... ./coll/... ./rank/...
	CGO_ENABLED=1 $(GO) test -run '^$$' -bench Instructions -benchtime 1x ./rdma/verbs

.PHONY: results
results: ## docs/results.md anew: what the applications' guides measured, beside the MPIs (ten minutes; QUICK=1: one, into bin/quick)
	@scripts/test-deps results
	@$(MAKE) --no-print-directory build
	$(GO) build -o bin/ ./e2e/results
	bin/results -bin bin $(if $(QUICK),-quick -to bin/quick,-to docs)

.PHONY: lint
lint: layout ## gofmt, go vet and golangci-lint
	$(GO) run $(GOLANGCI) run --allow-parallel-runners ./...

APIDIFF := golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e
SINCE   ?= $(shell git describe --tags --abbrev=0 2>/dev/null)

.PHONY: api
api: ## how the public packages differ from the last release (SINCE=commit)
	@[ -n "$(SINCE)" ] || { echo "api: no release is tagged; make api SINCE=COMMIT compares with a commit"; exit 1; }
	@dir=$$(mktemp -d); trap 'rm -rf $$dir' EXIT; set -e; \
	mkdir $$dir/old; git archive $(SINCE) | tar -x -C $$dir/old; \
	(cd $$dir/old && $(GO) run $(APIDIFF) -m -w $$dir/api $$($(GO) list -m)); \
	$(GO) run $(APIDIFF) -m $$dir/api $$($(GO) list -m)

.PHONY: clean
clean: ## remove what the targets above made
	rm -rf bin coverage.out
	$(GO) clean -testcache
