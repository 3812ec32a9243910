.DEFAULT_GOAL := help
GO ?= go
LINT := bin/golangci-lint
LINT_VERSION := v2.15.0
FUZZTIME ?= 30s

.PHONY: help demo pictures shots build test test-full lint bench torture fuzz tools clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## one noisy, one dead and one failing tenant leave the others untouched (a minute)
	$(GO) run ./cmd/fairlane demo

pictures: ## redraw the pictures in docs/ from a fresh run
	$(GO) run ./cmd/fairlane demo --plot docs/demo.svg
	$(GO) run ./cmd/fairlane sim run all --plot docs/sim.svg

build: ## build bin/fairlane
	$(GO) build -trimpath -o bin/fairlane ./cmd/fairlane

test: tools ## every test, with the race detector
	$(GO) vet ./...
	$(GO) test -race -timeout 12m ./...
	cd bench && $(GO) vet . && $(GO) test .

test-full: tools ## as test, and fail when a test was skipped
	$(GO) test -race -timeout 20m -v ./... > bin/test-full.log || { cat bin/test-full.log; exit 1; }
	@! grep -E '^ *--- SKIP' bin/test-full.log

lint: $(LINT) ## formatting and static checks
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	$(LINT) run ./...

$(LINT):
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

bench: ## the figures of docs/benchmarks.md, as ratios of interleaved runs
	cd bench && $(GO) run .

torture: tools ## long crash and property runs, before a release
	$(GO) test -timeout 60m -count=1 ./internal/torture/ ./internal/journal/ ./admit/redisquota/ ./sim/scenario/ -torture

fuzz: ## every fuzz target for FUZZTIME each
	scripts/fuzz $(FUZZTIME)

tools:
	@mkdir -p bin
	@scripts/tools

clean: ## remove what was built
	rm -rf bin

shots: tools ## a picture of every page, in both themes, in bin/shots
	@mkdir -p bin/shots
	$(GO) test ./internal/ui -count=1 -run EveryPageInChromium -shots $(CURDIR)/bin/shots
