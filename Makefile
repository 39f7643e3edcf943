# The front door for people; CI calls the same.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
REMIT_LAUNCHER ?=

.PHONY: test lint build bench everyday launcher clean

# A stamp of its own: `remit` may have been installed before, without the tools of the tests.
$(VENV)/.ready: pyproject.toml launcher/Cargo.toml $(shell find launcher/src launcher/seccomp launcher/build.rs src remit.data -type f -not -name '*.pyc')
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --group test --group lint
	$(BIN)/pip install --quiet '.[example]'
	touch $@

build: $(VENV)/.ready

## all tests: the launcher's own, then everything in tests/
test: build
	cargo test --quiet --manifest-path launcher/Cargo.toml
	$(BIN)/python -m pytest

## formatters and linters, of both languages, and the direction of imports
lint: build
	cargo fmt --manifest-path launcher/Cargo.toml --check
	cargo clippy --quiet --manifest-path launcher/Cargo.toml --all-targets -- -D warnings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

## ratios against peers that are installed (bubblewrap; nginx and wrk for mitmproxy), in one run
bench: build
	$(BIN)/python bench/run.py
	$(BIN)/python bench/relay.py
	$(BIN)/python bench/egress.py

## ordinary commands, bare and inside: what differs
everyday: build
	$(BIN)/python bench/everyday/run.py

clean:
	rm -rf $(VENV) launcher/target
