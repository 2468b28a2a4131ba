# `make demo` and `make test` each set up all they need, in .venv and target, on a machine with
# Python >= 3.10, cargo, a C and C++ compiler, make, CMake and git. Repeated runs are quick: the
# package is built and installed again only when a file that goes into it has changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
SOURCES := pyproject.toml hatch_build.py Cargo.toml Cargo.lock README.md LICENSE \
	$(shell find crates packaging plugins python -type f -not -name '*.pyc')
PYTEST := $(BIN)/python -m pytest

.PHONY: build demo test lint fmt test-rust test-loom test-sanitize test-fuzz test-python test-c \
	test-hdf5 test-packaging test-standin test-memory test-legate clean
# The parts share one cargo target folder and one terminal.
.NOTPARALLEL:

build: $(INSTALLED)

demo: build
	$(BIN)/penstock demo

test: lint test-rust test-loom test-sanitize test-fuzz test-python test-c test-hdf5 test-packaging test-standin
	@echo "make test: everything passed"

lint: build
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --manifest-path fuzz/Cargo.toml --target-dir target/fuzz --locked -- -D warnings
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

fmt: build
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

test-rust:
	scripts/standin-gpu cargo test --workspace --locked

# Loom swaps the synchronisation primitives at compile time, so its build has a folder of its own.
test-loom:
	RUSTFLAGS="--cfg loom" cargo test --release --locked -p penstock-engine --lib model \
		--target-dir target/loom

# Conformance and requests again, under ThreadSanitizer.
test-sanitize:
	scripts/sanitize

# PENSTOCK_FUZZ_SECONDS for each target, 60 if it is not set.
test-fuzz:
	scripts/fuzz

test-python: build
	$(PYTEST) tests/python tests/cli tests/faults tests/programs

test-c: build
	$(PYTEST) tests/c

# The driver on HDF5 1.14.4 and 2.2.0, which are built at the first time. What uses device memory
# runs on the stand-in, whether or not there is a GPU.
test-hdf5: build
	$(PYTEST) tests/hdf5
	scripts/standin-gpu $(PYTEST) tests/hdf5 -k device

test-packaging: build
	$(PYTEST) tests/packaging

# What can differ with a GPU, once more on the stand-in.
test-standin: build
	scripts/standin-gpu $(PYTEST) tests/python tests/cli tests/c tests/programs

# The C programs under AddressSanitizer, the Python tests on allocators that check; part of no other.
test-memory: build
	scripts/asan
	scripts/debug-malloc

# Legate's wheel on the driver. It is not part of `make test`: 400 MB are downloaded, once.
LEGATE := target/legate

test-legate: build $(LEGATE)/installed
	PENSTOCK_TEST_LEGATE=$(LEGATE)/bin/python scripts/standin-gpu --preload-path $(PYTEST) tests/legate

$(LEGATE)/installed:
	$(PYTHON) -m venv $(LEGATE)
	$(LEGATE)/bin/python -m pip install --quiet legate-cu12==26.6.1 nvidia-cuda-runtime-cu12
	touch $@

clean:
	rm -rf target $(VENV) dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(INSTALLED): $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet '.[test]'
	touch $@
