# Everything here works from a clean clone, as root on Debian or Ubuntu, or with Go and a Docker Engine.

GO ?= go
SHELL := /bin/bash
FUZZTIME ?= 20s
FUZZ ?= Fuzz
FUZZED ?= ./...
TEST := GO=$(GO) scripts/test
LINT := $(GO) tool -modfile=tools/go.mod golangci-lint

export FUMEHOOD_TIER

.DEFAULT_GOAL := help
.PHONY: help build guest demo check test test-cheats test-all test-all-tests test-all-load test-all-promises test-all-fuzz \
	test-all-mutants \
	mutants precommit fuzz lint fmt vet tidy names bench generate promises docker images release leftovers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

guest: ## build the guests that programs embed, if their sources have changed
	@$(GO) generate -run 'build$$' ./internal/guestbin

build: guest ## build bin/fumehood
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/fumehood ./cmd/fumehood

demo: ## judge the submissions of examples/judge, from a fresh machine on
	@GO=$(GO) scripts/demo

check: names guest ## test what needs no Docker, with the race detector: before a commit
	@$(TEST) -race -short ./...

test-cheats: images guest ## try every submission of examples/cheats
	@$(GO) test -count=1 -run '^TestNoCheatScores$$' ./examples

# The package whose tests take the longest comes first, so that it does not run on alone.
test: FUMEHOOD_TIER := $(or $(FUMEHOOD_TIER),quick)
test: images guest ## test everything against a Docker Engine: before a push
	@$(GO) build ./... && $(GO) build -race ./... # else tests that build programs wait for all that with the others
	@$(TEST) $(TESTFLAGS) -count=1 -p 2 -parallel 4 -timeout 40m ./provider/docker ./...

test-all: ## all that exists, in parts that can be run alone: after a change of guest, wire, engine, clean-up or Compose
	@GO=$(GO) scripts/test-all

# Tests that keep the whole machine busy for minutes in the tier all. Beside them, others would fail by time.
LOAD := ^(TestNoCheatScores|TestOnlyARepairIsARepair|TestAForkBombIsEndedSoonAndWhatRunsBesideGoesOn|TestManyCommandsAreExactAndLeaveNothing|TestWhatWasWrittenBeforeTheExitIsNotLost|TestAKillEndsEveryTreeToTheLastProcess|TestMountsOfTheWorkspaceLeadNowhereElse|TestResetChangesNothingOfTheHost|TestACheckpointIsOfOneMoment|TestACheckpointOfAHostileTreeChangesNothingOfTheHost|TestAnEvaluationOfManySamplesTakesLittleMemory)$$

test-all-tests: FUMEHOOD_TIER := all
test-all-tests: images guest ## a part of test-all: all tests at full size but those of test-all-load, with the race detector
	@scripts/ensure-qemu
	@GO=$(GO) scripts/ensure-runsc
	@scripts/ensure-engine28
	@$(TEST) -race -count=1 -p 2 -parallel 4 -timeout 60m -skip '$(LOAD)' ./provider/docker ./...

test-all-load: FUMEHOOD_TIER := all
test-all-load: images guest ## a part of test-all: attacks and loads of many minutes
	@$(TEST) -race -count=1 -p 1 -parallel 4 -timeout 60m -run '$(LOAD)' ./examples ./provider/docker ./session ./internal/cli

test-all-promises: promises ## a part of test-all: every column of the conformance suite

test-all-fuzz: fuzz ## a part of test-all: every fuzz target

test-all-mutants: mutants ## a part of test-all: every known defect is caught

mutants: images guest ## apply each defect of testdata/mutants in turn; a test has to fail
	@GO=$(GO) scripts/mutants

precommit: ## format, vet and lint what has changed, in a few seconds
	@GO=$(GO) scripts/precommit

fuzz: ## run every fuzz target, or those of FUZZED that FUZZ names, for FUZZTIME, 20s if not set
	@GO=$(GO) scripts/fuzz $(FUZZTIME) '$(FUZZ)' $(FUZZED)

lint: guest ## run the linter at its pinned version (first run: a minute to build it)
	$(LINT) run

fmt: ## format all Go files
	$(LINT) fmt

vet: guest ## vet for Linux, macOS and Windows
	@for os in linux darwin windows; do \
		echo "go vet ($$os)"; GOOS=$$os $(GO) vet ./... || exit 1; \
	done

tidy: ## check that go.mod and go.sum are tidy, here and in tools
	$(GO) mod tidy -diff
	$(GO) -C tools mod tidy -diff
	$(GO) -C tools/runsc mod tidy -diff

names: ## check that the project's former name is gone
	@scripts/check-names

bench: images guest ## run the benchmarks
	$(GO) run ./bench

generate: ## rebuild generated files
	$(GO) generate ./...

# The flag -update-promises exists only where a test uses the conformance suite.
promises: FUMEHOOD_TIER := all
promises: images guest ## record again which promises each provider keeps
	@GO=$(GO) scripts/ensure-runsc
	@scripts/ensure-engine28
	@packages=$$($(GO) list -f '{{$$p := .ImportPath}}{{range .TestImports}}{{$$p}} {{.}}{{"\n"}}{{end}}{{range .XTestImports}}{{$$p}} {{.}}{{"\n"}}{{end}}' ./provider/... \
		| awk '$$1 ~ suite || $$2 ~ suite { print $$1 }' suite='/fumehood/provider/conformance$$' | sort -u); \
	$(GO) test -count=1 -p 1 -parallel 8 -timeout 60m $$packages -run Promises -args -update-promises

docker: ## make sure that a Docker Engine answers
	@scripts/ensure-docker

images: docker ## make the images for tests, once
	@GO=$(GO) scripts/test-images

release: ## make the tag VERSION with the guests in it, and programs in dist
	@scripts/release tag $(VERSION)
	@scripts/release binaries $(VERSION)

leftovers: ## fail if Fumehood left containers, files or processes behind
	@scripts/check-leftovers

clean: ## remove what was built
	rm -rf bin dist bench-results
