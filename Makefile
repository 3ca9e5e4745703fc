# Everything a person or a build machine does with this tree. `make` lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help console build nodes helm images testrun test test-all test-long test-short flakes mutants lint generate demo attack corpus bench bench-quick soak clean

BIN := $(CURDIR)/bin

# What the linked API servers call themselves.
KUBERNETES := $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2; exit }' go.mod)
MINOR := $(word 2,$(subst ., ,$(KUBERNETES)))
version = -X $(1).gitVersion=$(KUBERNETES) -X $(1).gitMajor=1 -X $(1).gitMinor=$(MINOR)
LDFLAGS := -s -w $(call version,k8s.io/component-base/version) $(call version,k8s.io/client-go/pkg/version)

# Tests that drive the built binaries find them here.
export ATOLL_BIN_DIR := $(BIN)

# Without the paths of this folder in them, compiled packages serve every other clone.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

# Binaries, and tests that link the API server, are built without cgo: with the
# same settings, they share the compiled Kubernetes.
GO := CGO_ENABLED=0 go

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# gRPC's tracing pages would bring html/template along, and with it every method of
# every type: 20 MB that an agent does not need.
LIGHT := -tags grpcnotrace

build: ## build bin/atoll, bin/atoll-hub and bin/atoll-lab
	$(GO) build $(LIGHT) -ldflags "$(LDFLAGS)" -o $(BIN)/ ./cmd/atoll
	$(GO) build -ldflags "$(LDFLAGS)" -o $(BIN)/ ./cmd/atoll-hub
	$(GO) build -C lab -ldflags "$(LDFLAGS)" -o $(BIN)/ ./cmd/atoll-lab

nodes: ## build bin/nodes, with which atoll-lab up --real-nodes runs containers
	cd lab/realnode/parts && $(GO) build -ldflags "-s -w" -o $(BIN)/nodes/ tool
	$(GO) build -C lab -ldflags "$(LDFLAGS)" -o $(BIN)/nodes/ k8s.io/kubernetes/cmd/kubelet
	cd lab/realnode/metrics && $(GO) build -ldflags "-s -w" -o $(BIN)/nodes/ tool

# Helm goes by the module of the tools, whose client libraries are of the hub's version, so that
# most of it is compiled already.
helm: ## build bin/helm, upstream's, which tests drive
	cd tools && $(GO) build -ldflags "-s -w" -o $(BIN)/helm helm.sh/helm/v4/cmd/helm

# Image layouts, each for all PLATFORMS. The time in them is that of the commit, so that
# the same commit gives the same images.
PLATFORMS ?= linux/amd64,linux/arm64
VERSION := $(shell sed -n 's/^const Version = "\(.*\)"/\1/p' internal/atoll/*.go)

images: ## write bin/images/atoll and bin/images/atoll-hub, OCI image layouts, without Docker; PLATFORMS=linux/amd64,...
	cd tools && go run ./images/build -root .. -out $(BIN)/images -platforms $(PLATFORMS) -ldflags "$(LDFLAGS)" \
		-version $(VERSION) -revision $$(git rev-parse HEAD) -time $$(git log -1 --format=%ct)

# tools/testrun lists what each level runs.
testrun:
	cd tools && $(GO) build -ldflags "-s -w" -o $(BIN)/ gotest.tools/gotestsum ./testrun

test: build testrun ## run what decides whether a change is right: cores, shells, and an end-to-end test for each promise
	$(BIN)/testrun test

test-all: build nodes helm testrun ## run every test: also all end-to-end tests, real containers, attacks, budgets, charts and images
	$(BIN)/testrun all

test-long: build nodes helm testrun ## run what test-all has and test has not
	$(BIN)/testrun long

test-short: testrun ## run what needs no cluster, in under three minutes
	$(BIN)/testrun short

# RUNS runs beside LOAD processes that only compute, of the level test, or of one package by IN and its
# tests by RUN. An interrupted call goes on at the run that was interrupted.
RUNS ?= 10
LOAD ?= 0
flakes: build testrun ## count how often each test fails: RUNS=10 LOAD=2 IN=./internal/placer RUN=TestX
	$(BIN)/testrun -runs $(RUNS) -load $(LOAD) $(if $(IN),-package $(IN) $(if $(RUN),-run '$(RUN)'),test)

# A mutant is a small fault in a package that decides: N are drawn by SEED.
N ?= 300
mutants: ## draw N=300 faults by SEED=1 and print those that test-short does not find, in 30 minutes
	cd tools && go run ./mutants/run -root .. -n $(N) -seed $(or $(SEED),1) $(if $(IN),-packages "$(IN)")

lint: ## go vet and staticcheck
	$(GO) vet ./...
	$(GO) tool staticcheck ./... atoll.dev/atoll/api/...
	cd api && $(GO) vet ./...
	$(GO) build -o $(BIN)/staticcheck honnef.co/go/tools/cmd/staticcheck
	cd lab && $(GO) vet ./... && CGO_ENABLED=0 $(BIN)/staticcheck ./...
	cd tools && $(GO) vet ./...
	cd test/monitoring && $(GO) vet ./...
	@test -z "$$(gofmt -l api cmd deploy internal lab test tools 2>/dev/null | tee /dev/stderr)" || { echo "the files above want gofmt"; exit 1; }

generate: ## write CRDs, deepcopy, protocol code and the plain manifests of the agent anew
	go tool controller-gen object paths=./api/...
	go tool controller-gen crd:crdVersions=v1 "paths={./api/v1alpha1,./api/engine/...,./api/karmada/...,./api/multicluster/...}" output:crd:artifacts:config=api/crds
	go tool controller-gen crd:crdVersions=v1 paths=./api/agent/... output:crd:artifacts:config=deploy/charts/atoll-agent/files
	go generate ./internal/...
	cd tools && go run ./charts/generate ../deploy

# The built files are committed, so that `make build` needs no Node.
console: ## build the web console of web/ into internal/console/assets; needs Node 20 and npm
	cd web && npm ci --no-audit --no-fund && npm run types && npm run check && npm test && npm run build -- $(BIN)/console
	cd tools && $(GO) run ./console/pack $(BIN)/console ../internal/console/assets

demo: build ## a hub, three real clusters and a shop, told on the terminal; ONCE=1 cleans up and ends
	$(BIN)/atoll-lab demo $(if $(ONCE),--once)

attack: build ## attack the hub of the lab in DIR by every attack, a minute each
	$(BIN)/atoll-lab attack all --for 60s $(if $(DIR),--dir $(DIR))

corpus: build helm ## apply each manifest of the corpus to a hub and to a plain cluster, and print the differences; ONLY=REGEX
	$(BIN)/atoll-lab corpus lab/test/corpus/testdata $(if $(ONLY),--only '$(ONLY)')

bench: build ## measure the numbers of the README
	$(BIN)/atoll-lab bench

bench-quick: build ## small runs of the scenarios, held to their budgets of counts, in under five minutes
	$(GO) test -C lab -count=1 -timeout 10m ./test/bench

# SEEDS is how many random runs; SEED is the first one's.
SEEDS ?= 20
soak: build ## long runs of random faults; SEEDS=n of them, from SEED=n on
	ATOLL_SOAK_SEEDS=$(SEEDS) ATOLL_SEED=$(SEED) $(GO) test -C lab -tags soak -count=1 -timeout 0 -v -run Soak ./test/e2e/...

clean: ## delete what was built
	rm -rf $(BIN)
