# What a person types. Each target is one line of README.md.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# Fresh simulator seeds that `make sim` runs.
SEEDS ?= 500
# Power cuts that `make exhaust` goes through.
POINTS ?= 1000000
# Bad inputs for each parser that `make fuzz` runs, and what decides them.
INPUTS ?= 1000000
SEED ?= 1
# Operations on files, over all files together, that `make posix` does after its cases.
OPERATIONS ?= 40000

# Tests, the simulator and the end-to-end scripts share this profile: one build, at speed, with
# assertions and overflow checks on.
CHECKED := --profile checked

.PHONY: screenshots help demo test test-build test-run test-md test-clients test-vm test-command test-seeds bench sim exhaust canaries fuzz posix lint alerts deny advisories deb rpm container book tutorial pages setup take-overs fail-overs

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 26

demo: ## Make an array of files, serve it, lose a member under load, rebuild, prove every byte
	scripts/setup-packages demo
	cargo run --release -p braid -- demo

# All packages at once, whatever is run of them: cargo chooses the features of a dependency for the packages that it is asked for,
# and another choice would compile nearly everything again. The library that braid-bench-compare measures is not installed for tests.
TESTS := cargo test $(CHECKED) --workspace --exclude braid-bench-compare

test: ## Everything: packages, lint, tests, simulator, end to end
	scripts/setup-packages test
	@trap 'printf "%s\n" "time of each part:" "$${times[@]}"' EXIT; times=(); \
	for part in lint test-build test-run; do \
		start=$$SECONDS; $(MAKE) $$part; \
		times+=("$$(printf '%6d s  %s' $$((SECONDS - start)) $$part)"); \
	done

# As root, since some tests mount.
test-build: # Everything that test-run runs
	$(TESTS) --no-run

test-run: # All tests
	$(TESTS)

# Guests run the program, which is built with tests of its own.
test-md: ## Of the tests, those with the real md: arrays of each in the hands of the other
	$(TESTS) --test command --no-run
	$(TESTS) --test md

test-clients: ## Of the tests, those with real clients: fio, the kernel's NBD client, a guest's disk
	$(TESTS) --test clients

test-vm: ## Of the tests, those that need a newer kernel's drivers, in a guest under QEMU
	$(TESTS) --test command --no-run
	$(TESTS) --test qemu

test-command: ## Of the tests, those of the command and its server as a user runs them; as root, since some mount
	$(TESTS) --test command --test volume

screenshots: ## Take the pictures of docs/web.md and docs/seeing.md again, by the tests of the page and of `braid top`
	scripts/setup-packages test
	BRAID_SCREENSHOTS=$(CURDIR)/docs/web $(TESTS) --test command -- web::a_browser top::

test-seeds: ## Of the tests, the histories of the simulator: all saved seeds, and 500 that are always the same
	$(TESTS) --test seeds

bench: ## The tables of docs/benchmarks, with rivals beside them
	scripts/setup-packages bench
	cargo build --release -p braid
	cargo run --release -p braid-bench -- tables --markdown docs/benchmarks
	cargo run --release -p braid-bench-compare -- parity --markdown docs/benchmarks/parity.md

sim: ## Run SEEDS fresh simulator seeds; a failing one is printed and replays alone
	cargo run $(CHECKED) -p braid-sim -- run --seeds $(SEEDS)

exhaust: ## Cut the power at every write of short histories, POINTS times in all; writes docs/simulator-exhaust.md
	cargo run $(CHECKED) -p braid-sim -- exhaust --points $(POINTS) --write docs/simulator-exhaust.md

canaries: ## Plant each bug of the simulator's table in the engine and count the seeds that find it
	cargo run $(CHECKED) -p braid-sim --features plants -- canaries --write docs/simulator-canaries.md

fuzz: ## Feed INPUTS bad inputs to every parser; one that fails is saved and replays alone
	cargo run $(CHECKED) -p braid-fuzz -- run --inputs $(INPUTS) --seed $(SEED) --save target

posix: ## Ask the file system of DIR what POSIX asks of one (as root, to act as other users too)
	cargo run $(CHECKED) -p braid-posix -- --dir $(DIR)
	cargo run $(CHECKED) -p braid-posix -- fsx --dir $(DIR) --operations $$(($(OPERATIONS) / 4))

take-overs: ## A server takes over from another a hundred times at each door, under a client that verifies; writes docs/take-overs.md
	cargo build --release -p braid -p braid-interop
	rm -rf /dev/shm/braid-take-overs
	target/release/braid-interop take-overs --braid target/release/braid --work /dev/shm/braid-take-overs --markdown docs/take-overs.md

fail-overs: ## A host takes over from another by their lease in etcd, 50 times, under clients that verify; as root; writes docs/fail-overs.md
	scripts/setup-packages test
	cargo build --release -p braid -p braid-interop
	rm -rf /dev/shm/braid-fail-overs
	target/release/braid-interop fail-overs --braid target/release/braid --work /dev/shm/braid-fail-overs --markdown docs/fail-overs.md

interop: ## braid and the real md (in a guest kernel) on each other's arrays; writes docs/interop.md
	scripts/setup-packages test
	cargo run $(CHECKED) -p braid-interop -- states
	cargo run $(CHECKED) -p braid-interop -- matrix --markdown docs/interop.md

lint: ## Formatting, clippy with warnings denied, the rules of the tree (cargo xtask tidy), links between pages
	cargo fmt --all --check
	cargo clippy $(CHECKED) --workspace --all-targets -- -D warnings
	cargo xtask tidy
	scripts/make-book --check
	@if command -v cargo-deny >/dev/null; then $(MAKE) deny; else echo "lint: cargo-deny is not here: licences and sources of crates were not looked at"; fi

deny: ## Licences, sources and bans of all crates by the rules of deny.toml (cargo install cargo-deny --locked)
	cargo deny --offline check licenses bans sources

advisories: ## Known faults of the crates that we use, by cargo-deny and RustSec's list, which it fetches
	cargo deny check advisories

alerts: ## Check the alert rules of contrib/prometheus with promtool (Debian's prometheus)
	promtool check rules contrib/prometheus/braid.rules.yml
	cd contrib/prometheus && promtool test rules braid.rules.test.yml

deb: ## Make a Debian package, with the unit, udev rules, manual and completions, in target/
	cargo build --release -p braid
	scripts/make-deb target/release/braid target

rpm: ## Make an RPM with the same, in target/, by rpmbuild (Debian's rpm)
	cargo build --release -p braid
	scripts/make-rpm target/release/braid target

container: ## Make a container image, braid:VERSION, of the Debian package (contrib/Containerfile), by podman, buildah or docker
	cargo build --release -p braid
	scripts/make-container target/release/braid

book: ## The pages of docs/ as a book, target/book/html/index.html, by mdBook, which nothing else needs
	scripts/make-book

tutorial: ## Type the commands of docs/tutorial.md, and compare exit codes and output with the page
	scripts/setup-packages demo
	cargo build --release -p braid
	scripts/run-page target/release/braid docs/tutorial.md

pages: ## The same with each page that has such commands: the tutorial, recovery practised, several machines (as root)
	scripts/setup-packages test
	cargo build --release -p braid
	scripts/run-page target/release/braid docs/tutorial.md
	scripts/run-page target/release/braid docs/recovery-practice.md
	scripts/run-page target/release/braid docs/several-machines.md

setup: ## Install every system package that any target needs
	scripts/setup-packages all
