# labctl: `make up` ends with a running learner's VM, `make test` passes every test. Both set up what they need first.
export GOTOOLCHAIN := go1.27.3
# One set of settings for all that is built here, tests too: a first run compiles everything once. Programs are static.
export GOFLAGS := -buildvcs=false -trimpath
export CGO_ENABLED := 0
MODULE := github.com/cgoa-labs/labctl
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GO_BUILD := go build -o bin/
LDFLAGS := -s -w -X $(MODULE)/cmd/internal/cli.Version=$(VERSION)
# What goes into the image does not change with labctl's version, or every commit would make the image anew.
IMAGE_LDFLAGS := -s -w -buildid=
LABS := $(notdir $(patsubst %/,%,$(wildcard labs/catalog/*/)))
NAME ?= learner

.PHONY: up test bench setup build unit vm proof clean help
.DEFAULT_GOAL := help

help: ## What can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: build ## Set up everything, then a learner's VM running lab ci
	@bin/labctl up $(NAME)

test: setup ## Set up everything, then every test
	@scripts/test.sh

bench: build ## Measure, as ratios against a cold boot in the same run (bench/out)
	go run ./test/bench

setup: ## Install what labctl needs on this machine
	@scripts/setup.sh

build: setup ## Build labctl and the guest's programs into bin/
	@mkdir -p bin
	@echo "== build labctl and the guest's programs (a first build takes some minutes)" >&2
	@$(GO_BUILD) -ldflags "$(IMAGE_LDFLAGS)" ./cmd/labctl-agent ./cmd/labctl-probe
	@$(GO_BUILD) -ldflags "$(LDFLAGS)" ./cmd/labctl $(LABS:%=./cmd/lab-%)

unit: ## The tests that need no VM
	go test ./...

vm: build ## The tests that boot VMs
	go test -tags vm -count=1 -timeout 80m -v ./test/vm

proof: build ## The author's proof with every answer in its catalogue, without a VM, in a testbed and in a VM (docs/proof.md); a fleet of a thousand that is pretended, fifty kills
	PROOF=all go test -tags vm -count=1 -timeout 1h ./provision/stack
	PROOF=all go test -tags vm -count=1 -timeout 2h -v -run "TestKills|TestRelease" ./test/vm
	bin/labctl lab test $(LABS:%=labs/catalog/%) --testbed --vm --table docs/proof.md

clean: ## Remove what was built here; images and instances stay
	rm -rf bin bench/out
