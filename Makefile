# Everything that is done to this repository by command. `make help` lists it.

GO      ?= go
BUILD   := $(CURDIR)/.build
BIN     := $(CURDIR)/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)
STATICCHECK := $(BUILD)/bin/staticcheck-2026.2.2
VERSITYGW   := $(BUILD)/bin/versitygw
PACKAGES ?= ./...

.DEFAULT_GOAL := help

# The FoundationDB engine is built in whenever a C compiler is there: FDB_READY (a target), FDB_ENV and FDB_TAGS.
include layer/fdb/Makefile.inc

.PHONY: help
help: ## list what make can do
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: build
build: $(FDB_READY) ## build bin/varve
	$(FDB_ENV) $(GO) build $(FDB_TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/varve ./cmd/varve

.PHONY: run
run: build ## start a single node on this machine (ARGS='--log-level debug' adds flags)
	$(BIN)/varve serve $(ARGS)

.PHONY: demo
demo: build ## show a failover: three nodes, a producer, a leader that is killed
	$(BIN)/varve demo $(ARGS)

.PHONY: test
test: $(FDB_READY) $(VERSITYGW) build ## run the tests (PACKAGES=./layer/... for some of them)
	$(FDB_ENV) ops/test $(GO) test $(FDB_TAGS) -timeout 20m $(TESTFLAGS) $(PACKAGES)

.PHONY: race
race: $(FDB_READY) $(VERSITYGW) build ## run the tests under the race detector
	$(FDB_ENV) ops/test $(GO) test $(FDB_TAGS) -race -timeout 40m $(TESTFLAGS) $(PACKAGES)

.PHONY: test-fdb
test-fdb: $(FDB_READY) build ## run the tests on the cluster of VARVE_TEST_CLUSTER_FILE (client library: VARVE_TEST_FDB_LIBRARY)
	@test -n "$(VARVE_TEST_CLUSTER_FILE)" || { echo 'set VARVE_TEST_CLUSTER_FILE to the cluster file of a FoundationDB 7.3 or newer that tests may write to'; exit 1; }
	@test -n "$(FDB_TAGS)" || { echo 'the FoundationDB engine needs a C compiler: install gcc'; exit 1; }
	@test -r "$(VARVE_TEST_CLUSTER_FILE)" || { echo '$(VARVE_TEST_CLUSTER_FILE) cannot be read'; exit 1; }
	$(FDB_ENV) VARVE_TEST_CLUSTER_FILE=$(abspath $(VARVE_TEST_CLUSTER_FILE)) $(if $(findstring /,$(VARVE_TEST_FDB_LIBRARY)),VARVE_TEST_FDB_LIBRARY=$(abspath $(VARVE_TEST_FDB_LIBRARY))) \
		ops/test $(GO) test $(FDB_TAGS) -count=1 -p 2 -timeout 60m $(TESTFLAGS) $(PACKAGES)

# Without PACKAGES these are the tests of processes: the others have their own fake, or run as well on the embedded engine.
.PHONY: test-fdb-shared
test-fdb-shared: $(FDB_READY) build ## the same on a fake FoundationDB that processes share (./integration; PACKAGES=./... for all)
	layer/fdb/fdbtest/shared-store $(MAKE) --no-print-directory test-fdb PACKAGES='$(if $(filter file,$(origin PACKAGES)),./integration,$(PACKAGES))'

.PHONY: test-clients
test-clients: build $(BUILD)/clients/python/done $(BUILD)/clients/node/done ## test with Kafka clients of Python and Node.js, which it installs below .build
	VARVE_TEST_CLIENTS=$(BUILD)/clients VARVE_TEST_BINARY=$(BIN)/varve $(GO) test -count=1 -v ./integration/clients

.PHONY: test-browser
test-browser: build ## test with a page in a real browser (BROWSER=chromium)
	VARVE_TEST_BROWSER=$(or $(BROWSER),chromium) VARVE_TEST_BINARY=$(BIN)/varve $(GO) test -count=1 -v ./integration/browser

.PHONY: lint
lint: $(FDB_READY) $(STATICCHECK) ## gofmt, go vet and staticcheck, with and without FoundationDB
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; }
	$(FDB_ENV) $(GO) vet $(FDB_TAGS) ./...
	CGO_ENABLED=0 $(GO) vet ./...
	$(FDB_ENV) $(STATICCHECK) $(FDB_TAGS) ./...

.PHONY: chaos
chaos: $(FDB_READY) ## faults of every kind on a cluster of processes, for ROUNDS (200); VARVE_TEST_SEED replays
	$(FDB_ENV) VARVE_TEST_ROUNDS=$(or $(ROUNDS),200) $(GO) test $(FDB_TAGS) -count=1 -timeout 120m $(TESTFLAGS) -v -run '^TestChaos$$' ./integration

.PHONY: fuzz
fuzz: ## run every fuzz test for FUZZTIME (10s)
	ops/fuzz $(or $(FUZZTIME),10s)

.PHONY: bench
bench: build ## run the benchmarks
	$(FDB_ENV) $(GO) test $(FDB_TAGS) -run '^$$' -bench . -benchmem $(PACKAGES)

.PHONY: generate
generate: ## write what is made from the code: the tables of ops/README.md
	$(GO) test -count=1 -run 'TestReference$$' ./wiring -update

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BUILD) $(BIN)

$(STATICCHECK):
	GOBIN=$(BUILD)/bin $(GO) install honnef.co/go/tools/cmd/staticcheck@v0.8.2
	mv $(BUILD)/bin/staticcheck $@

# Clients of other languages, in the versions that integration/clients names.
$(BUILD)/clients/python/done: integration/clients/requirements.txt
	python3 -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(BUILD)/clients/node/done: integration/clients/package.json
	mkdir -p $(@D) && cp $< $(@D)/
	cd $(@D) && npm install --silent --no-fund --no-audit --no-package-lock
	touch $@

# A real S3 server for tests. Without it (no network, say) the tests that need it are skipped and say so.
$(VERSITYGW):
	-wal/objects/objectstest/server.sh install
