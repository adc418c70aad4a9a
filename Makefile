# `make help` lists the targets; .ci/run and people call the same ones.

SHELL := /bin/bash
CARGO ?= cargo
# Arguments for the test binaries, such as ARGS='doctor --nocapture'.
ARGS ?=
# What is tested can be made to fail at a given point; what is built for use can't.
FAULTS := --features fault-injection

.DEFAULT_GOAL := help
.PHONY: help deps build install test check fmt fmt-check lint deny doc architecture unit integration model model-mutants model-traces model-deep demo bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what running and testing need (apt, as root or through sudo)
	@scripts/deps.sh test

build: ## build both executables for use, into target/HOST/release
	$(CARGO) build --locked --release

install: ## install both executables with cargo, into ~/.cargo/bin unless CARGO_INSTALL_ROOT says otherwise
	$(CARGO) install --locked --path .

test: deps check unit integration model model-traces ## run everything that CI runs

check: fmt-check lint deny doc architecture ## run all checks that execute none of the program

fmt: ## format the code
	$(CARGO) fmt

fmt-check:
	$(CARGO) fmt --check

lint: ## run clippy on everything, warnings denied
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --all-targets $(FAULTS) -- -D warnings

deny: ## check licences, banned crates and sources of dependencies
	@scripts/cargo-deny.sh check --hide-inclusion-graph licenses bans sources

doc: ## build the API documentation, warnings denied
	RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' $(CARGO) doc --locked --no-deps --document-private-items

architecture: ## check the rules about the source tree, and what a plain build leaves out
	$(CARGO) test --locked --quiet --test architecture --test features

unit: ## run the unit tests
	$(CARGO) test --locked --lib --bins $(FAULTS) $(ARGS)

integration: ## run the real binaries as an unprivileged user; best as root or with sudo
	$(CARGO) test --locked --test integration $(FAULTS) -- $(ARGS)

model: ## check the protocol model on its bounded instances, and that every action is taken
	@scripts/model.sh

model-mutants: ## show that each broken variant of the protocol is caught by the invariant that is meant to
	@scripts/model-mutants.sh

model-traces: ## replay the sample traces against the model
	@scripts/trace.sh samples

model-deep: ## check the protocol model with larger bounds; hours
	@scripts/model.sh deep

demo: ## make an image and a project, and run a session in them that shows what it reaches
	@scripts/demo.sh

bench: ## measure against bare runsc, podman and others; writes journal/bench/DATE.md
	@scripts/bench.sh $(ARGS)

clean: ## remove everything that was built
	$(CARGO) clean
