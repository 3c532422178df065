# All targets work from a clean clone: as root on Debian or Ubuntu, or elsewhere with Go and a Docker Engine.

GO ?= go
SHELL := /bin/bash
FUZZTIME ?= 20s
FUZZ ?= Fuzz
FUZZED ?= ./...
SCHEMATIME ?= 120
SEED ?= 1
VETTED ?= linux darwin windows
TEST := GO=$(GO) scripts/test
LINT := $(GO) tool -modfile=tools/go.mod golangci-lint

export FUMEHOOD_TIER

.DEFAULT_GOAL := help
.PHONY: help build guest demo check test test-native test-cheats test-all test-all-tests test-all-load test-all-promises \
	test-all-fuzz test-all-schema test-all-mutants test-kubernetes \
	mutants precommit fuzz lint fmt vet tidy names words bench generate promises docker images archives release leftovers clean \
	test-client check-python test-python test-adapters lock-python wheel wheels test-wheel test-schema \
	compare bench-adapters reference-python

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

guest: ## build the guests that programs embed, if their sources have changed
	@$(GO) generate -run 'build$$' ./internal/guest/guestbin

build: guest ## build bin/fumehood
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/fumehood ./cmd/fumehood

demo: ## judge the submissions of examples/judge; works on a fresh machine
	@GO=$(GO) scripts/demo

check: names words guest ## run the tests that need no Docker, with the race detector: before a commit
	@$(TEST) -race -short ./...

test-cheats: images guest ## run every submission of examples/cheats
	@$(GO) test -count=1 -run '^TestExample_cheats$$' ./examples

# The package with the longest tests comes first, so that it is not the last one still running. What the tests build
# is built before, so that they do not wait for it. Only -race needs a C compiler.
test: FUMEHOOD_TIER := $(or $(FUMEHOOD_TIER),quick)
test: images build ## test everything against a Docker Engine: before a push
	@$(GO) build ./...
	@[[ "$(TESTFLAGS)" != *-race* ]] || $(GO) build -race ./...
	@rc=0; $(TEST) $(TESTFLAGS) -count=1 -p 2 -parallel 4 -timeout 30m ./provider/docker ./... || rc=1; \
		scripts/python client || rc=1; exit $$rc

test-native: FUMEHOOD_TIER := $(or $(FUMEHOOD_TIER),quick)
test-native: archives build ## run the tests that need no Docker, then the demo, where Docker is not installed: as root on Linux
	@scripts/without-docker env $(TEST) -short ./...
	@scripts/without-docker $(MAKE) --no-print-directory demo

test-all: ## run everything, in parts that also run alone: after a change of guest, wire, engine, cleanup or Compose
	@GO=$(GO) scripts/test-all

# Tests that keep the whole machine busy for minutes in the tier all. Other tests that ran at the same time would time out.
LOAD := ^(TestExample_cheats|TestExample_repair|TestExec_besideBusyLoops|TestExec_forkBombNeighbors|TestExec_manyCommands|TestExec_outputBeforeExit|TestCompose_manyInParallel|TestKill_hostileTree|TestSpawn_mountRace|TestSession_Reset_race|TestFinishCheckpoint_atomic|TestFinishCheckpoint_hostileTree|TestEval_memory)$$

test-all-tests: FUMEHOOD_TIER := all
test-all-tests: images guest ## part of test-all: all tests but those of test-all-load, at full size, with the race detector
	@scripts/ensure-programs
	@GO=$(GO) scripts/ensure-runsc
	@GO=$(GO) scripts/ensure-buildkit
	@scripts/ensure-crun
	@scripts/ensure-engine28
	@GO=$(GO) scripts/ensure-kubernetes
	@$(TEST) -race -count=1 -p 2 -parallel 4 -timeout 60m -skip '$(LOAD)' ./provider/docker ./...

test-all-load: FUMEHOOD_TIER := all
test-all-load: images guest ## part of test-all: attacks and loads that take many minutes
	@$(TEST) -race -count=1 -p 1 -parallel 4 -timeout 60m -run '$(LOAD)' ./examples ./provider/docker ./provider/native ./session ./internal/cli

test-all-promises: promises ## part of test-all: every column of the conformance suite

test-all-fuzz: fuzz ## part of test-all: every fuzz target

test-all-schema: test-schema ## part of test-all: the server against its OpenAPI document

test-all-mutants: mutants ## part of test-all: check that the tests catch every known defect

test-kubernetes: FUMEHOOD_TIER := all
test-kubernetes: images guest ## test the provider kubernetes on a cluster of one node; the first run builds its programs (some minutes)
	@GO=$(GO) scripts/ensure-kubernetes
	$(GO) test -race -count=1 -timeout 60m ./provider/kubernetes $(TESTFLAGS)

mutants: images guest ## apply each defect of testdata/mutants in turn; a test must fail
	@GO=$(GO) scripts/mutants

test-client: build images ## test the Python client with the python3 on the PATH; needs no package index
	@scripts/python client

check-python: ## check the Python client: mypy, ruff check, ruff format
	@scripts/python check

test-python: build images ## test the Python client on Python 3.10 to 3.13, where they are installed
	@GO=$(GO) scripts/python test

test-adapters: build images ## test the adapters of the Python client, or those named in ADAPTERS, each with its framework installed from its lock
	@scripts/python adapters $(ADAPTERS) -- $(TESTFLAGS)

test-schema: build images ## test the server against its OpenAPI document with schemathesis, for SCHEMATIME seconds (120) with each provider
	@scripts/python schema $(SCHEMATIME) $(SEED)

wheel: guest ## build the wheel of the Python client for this machine, or PLATFORM=linux/arm64, and print the command that installs it
	@GO=$(GO) scripts/python wheel $(PLATFORM)

wheels: guest ## build the wheels for all platforms
	@GO=$(GO) scripts/python wheels

test-wheel: images ## install this machine's wheel into an empty environment without a network, and use it
	@scripts/python install

reference-python: ## write docs/reference-python.md from the Python package's docstrings
	@scripts/python reference

lock-python: ## write the lock files in clients/python/requirements, or those named in LOCKS, from their .in files
	@scripts/python lock $(LOCKS)

precommit: ## format, vet and lint the changed packages, in a few seconds
	@GO=$(GO) scripts/precommit

fuzz: ## run the fuzz targets whose names begin with FUZZ, in the packages FUZZED (default: all), each for FUZZTIME (20s)
	@GO=$(GO) scripts/fuzz $(FUZZTIME) '$(FUZZ)' $(FUZZED)

lint: guest ## run the linter at its pinned version (first run: minutes to build it)
	$(LINT) run

fmt: ## format all Go files
	$(LINT) fmt

vet: guest ## vet for Linux, macOS and Windows
	@for os in $(VETTED); do \
		echo "go vet ($$os)"; GOOS=$$os $(GO) vet ./... || exit 1; \
	done

tidy: ## check that go.mod and go.sum are tidy, here and in tools
	$(GO) mod tidy -diff
	$(GO) -C tools mod tidy -diff
	$(GO) -C tools/runsc mod tidy -diff
	$(GO) -C tools/buildkit mod tidy -diff
	$(GO) -C tools/kubernetes mod tidy -diff

names: ## check that the project's former name is gone, and that identifiers say what they are
	@scripts/check-names
	@$(GO) test -count=1 -run '^TestIdentifiers' ./scripts

words: ## check that texts are in plain English
	@scripts/check-words

bench: images guest ## run the benchmarks
	$(GO) run ./bench

bench-adapters: build images ## run the adapters of the Python client beside what they replace
	@GO=$(GO) scripts/python bench-adapters

compare: build images ## run other packages that have sandboxes beside this one, and write docs/compare.md (15 minutes)
	@GO=$(GO) scripts/python compare $(ROUNDS)

generate: ## rebuild generated files
	$(GO) generate ./...

# Only tests that import the conformance suite have the flag -update-promises.
promises: FUMEHOOD_TIER := all
promises: images guest ## update docs/promises.json and .md: which promises each provider keeps
	@GO=$(GO) scripts/ensure-runsc
	@scripts/ensure-crun
	@scripts/ensure-engine28
	@GO=$(GO) scripts/ensure-kubernetes
	@packages=$$($(GO) list -f '{{$$p := .ImportPath}}{{range .TestImports}}{{$$p}} {{.}}{{"\n"}}{{end}}{{range .XTestImports}}{{$$p}} {{.}}{{"\n"}}{{end}}' ./provider/... ./test/... \
		| awk '$$1 ~ suite || $$2 ~ suite { print $$1 }' suite='/fumehood/provider/conformance$$' | sort -u); \
	$(GO) test -count=1 -p 1 -parallel 8 -timeout 60m $$packages -run Promises -args -update-promises

docker: ## make sure that a Docker Engine is running
	@scripts/ensure-docker

images: docker ## build the test images, if they do not exist
	@GO=$(GO) scripts/test-images

archives: ## make the test images without a Docker Engine, if they do not exist
	@GO=$(GO) scripts/test-images --archives

release: ## make the tag VERSION with the built guests, and programs in dist
	@scripts/release tag $(VERSION)
	@scripts/release binaries $(VERSION)

leftovers: ## fail if Fumehood left containers, files or processes behind
	@scripts/check-leftovers

clean: ## remove build results
	rm -rf bin dist bench-results
