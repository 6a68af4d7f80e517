# Everything one does with gorun's sources. `make help` lists the targets.
SHELL := /bin/bash
GO    ?= go
# gorun is a static binary; race builds need cgo, and say so themselves.
export CGO_ENABLED ?= 0

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 20s

.PHONY: help
help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build every command into bin/
	@mkdir -p bin
	$(GO) build -trimpath -o bin/ ./cmd/...
	@scripts/build-pmix bin
	@scripts/build-verbs bin

.PHONY: man
man: build ## the manual pages, bin/gorun.1 and bin/gorun-info.1
	bin/gorun --man >bin/gorun.1
	bin/gorun-info --man >bin/gorun-info.1

.PHONY: demo
demo: build ## the main job: four ranks, all-to-all on the software device
	bin/gorun -np 4 bin/a2a -m 32

.PHONY: test
test: build ## all tests; installs through apt what they need, where it may
	@scripts/test-deps
	$(GO) test ./...

.PHONY: test-rxe
test-rxe: ## tests on real verbs: Soft-RoCE in a virtual machine (QEMU, no KVM)
	@scripts/test-deps rxe
	$(GO) test -timeout 20m -count=1 ./testdata/rxe

.PHONY: race
race: ## the tests of the libraries under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -short ./internal/... ./rdma/... ./coll/... ./pmi/... ./rank/... ./launcher/...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (20s)
	@FUZZTIME=$(FUZZTIME) GO=$(GO) scripts/fuzz

.PHONY: bench
bench: build ## gorun beside MPICH and Open MPI, then the micro-benchmarks
	@scripts/test-deps
	bin/gorun-bench --quick
	bin/gorun-bench -b launch,launch_limit,init_limit,init_mpich,init_openmpi -n 1,4,16,64 -r 20 -i 1 --compare mpich,openmpi
	bin/gorun-bench -b output -n 4 -r 3 -i 1 --compare mpich,openmpi
	$(GO) test -run '^$$' -bench . -benchtime 200ms ./internal/... ./rdma/... ./coll/... ./rank/...
	CGO_ENABLED=1 $(GO) test -run '^$$' -bench Instructions -benchtime 1x ./rdma/verbs

.PHONY: lint
lint: ## gofmt, go vet and golangci-lint
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) run $(GOLANGCI) run ./...

.PHONY: clean
clean: ## remove what the targets above made
	rm -rf bin coverage.out
	$(GO) clean -testcache
