# Everything here works from a clean clone, as root on Debian or Ubuntu, or with Go and a Docker Engine.

GO ?= go
SHELL := /bin/bash
FUZZTIME ?= 20s
FUZZ ?= Fuzz
FUZZED ?= ./...

.DEFAULT_GOAL := help
.PHONY: help guest release build demo test fuzz lint fmt vet tidy bench generate promises docker images leftovers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

guest: ## build the guests that programs embed, if their sources have changed
	@$(GO) generate -run 'build$$' ./internal/guestbin

build: guest ## build bin/fumehood
	$(GO) build -trimpath -o bin/fumehood ./cmd/fumehood

demo: images build ## judge the submissions of examples/judge
	bin/fumehood eval examples/judge

# The package whose tests take the longest comes first, so that it does not run on alone.
test: images guest ## run all tests with the race detector; needs Docker
	@start=$$SECONDS; rc=0; \
	FUMEHOOD_TIER=$${FUMEHOOD_TIER:-quick} $(GO) test -race -parallel 4 -timeout 60m ./provider/docker ./... || rc=$$?; \
	echo "make test: $$((SECONDS - start)) s"; exit $$rc

fuzz: ## run every fuzz target, or those of FUZZED that FUZZ names, for FUZZTIME, 20s if not set
	@GO=$(GO) scripts/fuzz $(FUZZTIME) '$(FUZZ)' $(FUZZED)

lint: ## run the linter at its pinned version (first run: a minute to build it)
	$(GO) tool -modfile=tools/go.mod golangci-lint run

fmt: ## format all Go files
	$(GO) tool -modfile=tools/go.mod golangci-lint fmt

vet: ## vet for Linux, macOS and Windows
	@for os in linux darwin windows; do \
		echo "go vet ($$os)"; GOOS=$$os $(GO) vet ./... || exit 1; \
	done

tidy: ## check that go.mod and go.sum are tidy, here and in tools
	$(GO) mod tidy -diff
	$(GO) -C tools mod tidy -diff

bench: images guest ## run the benchmarks
	$(GO) run ./bench

generate: ## rebuild generated files
	$(GO) generate ./...

# The flag -update-promises exists only where a test uses the conformance suite.
promises: images guest ## write anew which promises each provider keeps
	@packages=$$($(GO) list -f '{{$$p := .ImportPath}}{{range .TestImports}}{{$$p}} {{.}}{{"\n"}}{{end}}{{range .XTestImports}}{{$$p}} {{.}}{{"\n"}}{{end}}' ./provider/... \
		| awk '$$1 ~ suite || $$2 ~ suite { print $$1 }' suite='/fumehood/provider/conformance$$' | sort -u); \
	FUMEHOOD_TIER=all $(GO) test -count=1 -p 1 -parallel 4 -timeout 60m $$packages -run Promises -args -update-promises

docker: ## make sure that a Docker Engine answers
	@scripts/ensure-docker

images: docker ## make the images for tests, once
	@$(GO) run ./internal/testimage

release: ## make the tag VERSION with the guests in it, and programs in dist
	@scripts/release tag $(VERSION)
	@scripts/release binaries $(VERSION)

leftovers: ## fail if Fumehood left containers, files or processes behind
	@scripts/check-leftovers

clean: ## remove what was built
	rm -rf bin dist bench-results
