# The front door. Every target is one line that a newcomer could type.
include deploy/versions.mk

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   = -X muster/internal/cli.buildVersion=$(VERSION)
LINT      = $(GO) tool -modfile=tools/go.mod -n golangci-lint
# The linter, which runs before, has all of go vet in it. The packages that take longest come first, or the end would wait
# for them. Compilers need a seventh less time with GOGC=400.
COMPILERS = -toolexec 'env GOGC=400'
TEST      = $(GO) test $(COMPILERS) -race -shuffle=on -vet=off
PACKAGES  = ./cmd/muster ./internal/testbed ./provisioner/withfleet ./server $$($(GO) list ./... | grep -v -e /internal/browsertest -e /internal/chaos -e /internal/attacks -e /deploy/windows -e /deploy/choria -e /deploy/puppet -e /deploy/certmonger)

# A program with the race detector sleeps for a second before it ends, by default. Tests start hundreds.
export GORACE ?= atexit_sleep_ms=20

.PHONY: check build cross test ci browser npm lint deps fuzz fuzz-short vuln cover golden demo attacks chaos bench binaries man packages install image kubernetes chart release ci-install help

check: lint test ## lint and test (the default)

build: ## build bin/muster and bin/muster-server, which need no library of the system
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

AGENTS    = windows/amd64 windows/arm64 darwin/amd64 darwin/arm64 freebsd/amd64 linux/arm64 linux/riscv64
OPERATORS = darwin/arm64 freebsd/amd64

cross: ## build and lint the agent for each system (AGENTS), and muster for operators' machines
	$(foreach s,$(AGENTS),$(call for,$s) $(GO) build -o /dev/null ./cmd/muster-server &&) true
	$(foreach s,$(OPERATORS),$(call for,$s) $(GO) build -o /dev/null ./cmd/muster &&) true
	$(call lint_for,windows/amd64,./cmd/muster-server)
	$(call lint_for,darwin/arm64,./cmd/...)

for = CGO_ENABLED=0 GOOS=$(word 1,$(subst /, ,$1)) GOARCH=$(word 2,$(subst /, ,$1))

# Tests are Linux's.
lint_for = lint=$$($(LINT)) && export $(for) && \
	$$lint run --tests=false $$($(GO) list -deps -f '{{if and .Module .Module.Main}}{{.Dir}}{{end}}' $2)

test: ## the quick tests, with the race detector, shuffled: they need Go, openssl and git, and no root
	$(TEST) -short -parallel 4 $(PACKAGES)

ci: deps npm bin/tools/nfpm ## all tests: also clusters, processes, disks, networks, other programs, and the console in Chromium
	$(call for,windows/amd64) $(GO) build $(COMPILERS) -gcflags='all=-N -l' -o /dev/null ./cmd/muster-server
	MUSTER_CI=1 $(TEST) -parallel 3 -timeout 15m $(PACKAGES)
	MUSTER_CI=1 $(TEST) -timeout 15m ./internal/chaos # alone: its processes need both cores
	$(NORACE) -timeout 15m ./internal/attacks ./internal/browsertest

browser: deps npm ## the tests of the console in Chromium; pictures of its pages go to screenshots/
	$(NORACE) -count=1 -timeout 10m ./internal/browsertest

# Without the race detector: nearly all that they test runs in other processes. They and fuzz-short share compiled packages.
NORACE = MUSTER_CI=1 MUSTER_SCREENSHOTS='$(CURDIR)/screenshots' $(GO) test $(COMPILERS) -shuffle=on -vet=off

npm:
	cd internal/browsertest && npm ci --ignore-scripts --no-audit --no-fund

# With the race detector, as tests are compiled: then this compiles for them. The linter itself is without.
lint: ## gofmt, plain words (tools/plain), and golangci-lint with all of go vet in it
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	$(GO) -C tools run ./plain ..
	GOGC=400 GOFLAGS="$$($(GO) env GOFLAGS) -race" $$($(LINT)) run ./...

# A machine with another npm than Debian's cannot have both, so only missing programs are installed.
deps: ## install what only `make ci` runs: Chromium, npm, prometheus, and what makes networks and disks that can fail
	@for p in openssl=openssl setsid=util-linux setpriv=util-linux ip=iproute2 fsfreeze=util-linux mkfs.ext4=e2fsprogs rpm=rpm shellcheck=shellcheck promtool=prometheus systemd-analyze=systemd chromium=chromium npm=npm; do \
		command -v $${p%=*} >/dev/null || missing="$$missing $${p#*=}"; \
	done; test -z "$$missing" || { apt-get update && apt-get install -y --no-install-recommends $$missing; }

fuzz: ## each fuzz target for 30 s (FUZZTIME), two packages at a time
	.ci/fuzz

fuzz-short: ## each fuzz target for 3 s, as CI does
	FUZZTIME=3s FUZZOURS=1 .ci/fuzz

vuln: ## known vulnerabilities in what we link
	$(GO) run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./...

cover: ## coverage of the tests, by function
	$(GO) test -coverprofile=cover.out ./... && $(GO) tool cover -func=cover.out

golden: ## rewrite the golden files
	$(GO) test ./... -update

demo: build ## a fleet of 200 real agents on loopback
	./bin/muster demo --nodes 200

bench: build ## the standard cases of muster bench, about twelve minutes; nothing else should run
	tools/bench.sh $(BENCH)

attacks: ## what attackers do to tokens, names, subjects, disks, files and pages, on real processes
	$(GO) test -count=1 -v ./internal/attacks

chaos: ## every fault at full size, about half an hour; the table goes to docs/performance.md
	$(GO) test -c -o bin/chaos.test ./internal/chaos
	cd internal/chaos && ../../bin/chaos.test -test.run '^TestChaos$$' -test.timeout 2h -chaos.full -chaos.doc ../../docs/performance.md $(CHAOS)

SYSTEMS = linux/amd64 linux/arm64

binaries: bin/tools/cyclonedx-gomod ## the programs as they are packaged, with components and licenses, in dist/bin
	VERSION=$(VERSION) deploy/release/binaries.sh $(SYSTEMS)

man: build ## manual pages and completions, to dist/man and dist/completions
	deploy/release/manual.sh

bin/tools/cyclonedx-gomod: deploy/versions.mk
	GOBIN='$(CURDIR)/bin/tools' $(GO) install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_GOMOD_VERSION)
	touch $@

bin/tools/nfpm: deploy/versions.mk
	GOBIN='$(CURDIR)/bin/tools' $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	touch $@

packages: binaries man bin/tools/nfpm ## deb, rpm and apk of muster and muster-server, in dist/packages
	NFPM=bin/tools/nfpm VERSION=$(VERSION) deploy/packages/packages.sh

install: ## after `make build man`: install both programs with their units below DESTDIR and PREFIX (INIT=openrc: OpenRC's)
	deploy/install.sh muster bin
	deploy/install.sh muster-server bin

image: binaries ## the container image of both programs, an OCI layout in dist/image
	$(GO) -C tools run ./image -out ../dist/image -version $(VERSION) -revision "$$(git rev-parse HEAD)" \
		-time "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}" ../dist/bin/linux-amd64 ../dist/bin/linux-arm64

KUBERNETES = $(HOME)/.cache/muster-kubernetes

kubernetes: ## build the Kubernetes that the chart is tested on, once in 12 minutes, into KUBERNETES
	test -d /usr/lib/cni && command -v runc >/dev/null || \
		{ apt-get update && apt-get install -y --no-install-recommends runc containernetworking-plugins; }
	deploy/helm/kubernetes.sh $(KUBERNETES)

chart: image kubernetes ## the tests of the Helm chart
	PATH=$(KUBERNETES):$$PATH MUSTER_CI=1 MUSTER_CI_INSTALL=1 $(GO) test -count=1 -timeout 20m ./deploy/helm

release: ## dist/release/VERSION, for VERSION=v0.1.0; KEY=FILE signs its checksums
	deploy/release/release.sh '$(VERSION)' '$(KEY)'

ci-install: deps cross packages image kubernetes ## the tests of what is in dist/: packages, image, chart, release
	@for p in xz=xz-utils puppet=puppet-agent puppetserver=puppetserver systemd-nspawn=systemd-container \
		mmdebstrap=mmdebstrap lintian=lintian podman=podman runc=runc \
		certmonger=certmonger dbus-daemon=dbus-daemon faketime=faketime haproxy=haproxy nginx=nginx-light curl=curl \
		/usr/lib/wine/wine64=wine64 x86_64-w64-mingw32-ld=binutils-mingw-w64-x86-64; do \
		command -v $${p%=*} >/dev/null || missing="$$missing $${p#*=}"; \
	done; test -z "$$missing" || { apt-get update && apt-get install -y --no-install-recommends $$missing; }
	PATH=$(KUBERNETES):$$PATH MUSTER_CI=1 MUSTER_CI_INSTALL=1 $(GO) test -count=1 -timeout 40m ./deploy/... \
		./server/certificates/withfleet

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 10
