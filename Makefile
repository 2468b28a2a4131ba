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

# `make test` first builds GROUND, beside the tests that do not need it, and then runs the other tests. Each
# part can be made by itself. LANES parts run side by side, the longest first; the output of a part comes in
# one piece when it ends.
GROUND := build-rust standin torch build-hdf5-2.2.0 build-hdf5-1.14.4 build-hdf5-parallel
PARTS := test-standin test-torch test-python test-hdf5-host test-rust test-hdf5-device test-cli test-parallel \
	lint test-packaging test-dist test-c test-faults test-programs test-docs test-oldest
# More than there are processors, since tests also wait.
LANES ?= $(shell echo $$(($$(nproc) + 1)))
STANDIN_MARKERS ?= gpu or either
# Tests with several parameters run with each value, in test-long with all combinations. Tests marked `long`
# run in test-long only. See tests/combinations.py.
export PENSTOCK_TEST_CASES ?= each

# The threads that NumPy starts when it is imported spin for a tenth of a second, in each of a thousand
# processes of the tests, which use none of them.
export OPENBLAS_NUM_THREADS ?= 1

# Without compiled modules, torch takes four seconds to import instead of two, and tests are compiled anew in
# each part.
unexport PYTHONDONTWRITEBYTECODE

# Only these run make again. Cargo and CMake would read the flags of make as their own.
ifeq ($(filter test test-long,$(MAKECMDGOALS)),)
unexport MAKEFLAGS MFLAGS
endif

.PHONY: build build-hdf5 demo test test-long fmt clean $(GROUND) $(PARTS) test-hdf5 test-loom test-kernels \
	test-fuzz test-sanitize test-memory test-legate lint-release wheels

build: $(INSTALLED)

demo: build
	$(BIN)/penstock demo

# A single compilation needs neither incremental data nor lines in backtraces. Nearly all tests wait for the
# package, so other builds run beside its compiler with `nice`.
test: export CARGO_INCREMENTAL ?= 0
test: export CARGO_PROFILE_DEV_DEBUG ?= none
# Most of what the compiler does to the package is to optimize across the units of a crate. test-long tests the
# package as it ships.
test: export CARGO_PROFILE_RELEASE_LTO ?= off
# Python compiles the modules that the tests import; pip would compile all.
test: export PIP_COMPILE ?= 0
test:
	status=0; \
	$(MAKE) --jobs=$(LANES) --output-sync=target --keep-going $(GROUND) || status=1; \
	printf '%s\n' $(PARTS) | \
		xargs -P $(LANES) -I PART scripts/quietly target/PART.log $(MAKE) PART || status=1; \
	exit $$status
	@echo "make test: everything passed"

# All of `make test` with more cases, then the slow tests; takes hours. A run with other values than these does
# not count for a release: scripts/release reads them here.
test-long: export STANDIN_MARKERS :=
test-long: export CARGO_PROFILE_RELEASE_LTO := false
test-long: export PENSTOCK_TEST_CASES := all
test-long: export PENSTOCK_TEST_SECONDS ?= 0
test-long: export PENSTOCK_FUZZ_SECONDS ?= 60
test-long: export PENSTOCK_CASES ?= 300
test-long: export PENSTOCK_TEST_ORACLE ?= 3000
test-long: export PENSTOCK_TEST_FAULTS ?= 5000
test-long: export PENSTOCK_TEST_PROGRAMS ?= 5000
test-long: export PENSTOCK_TEST_MPI_PROGRAMS ?= 2000
test-long: export PENSTOCK_TEST_THREADS_SECONDS ?= 3
test-long: export PENSTOCK_TEST_PARALLEL ?= $(ALL_PARALLEL)
test-long:
	scripts/release --begin test-long
	$(MAKE) test
	$(MAKE) test-loom
	$(MAKE) test-kernels
	$(MAKE) test-fuzz
	$(MAKE) test-sanitize
	$(MAKE) test-memory
	$(MAKE) lint-release
	scripts/release --record test-long
	@echo "make test-long: everything passed"

lint: build build-rust
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(PYTEST) tests/architecture

# What other services read: the citation, the workflows, the conda recipe.
lint-release:
	scripts/lint-release

fmt: build
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# Compiles the code that the tests and clippy share, before both.
build-rust:
	nice cargo test --workspace --locked --no-run

test-rust: standin build-rust
	scripts/standin-gpu cargo test --workspace --locked

# The kernels in warps of 32 lanes, as on a GPU. test-rust runs them with one, in a third of the time.
test-kernels: standin build-rust
	CUDASIM_LANES=32 scripts/standin-gpu cargo test --locked -p penstock-codec --test gpu

# Loom swaps the synchronisation primitives at compile time, so its build has a folder of its own. Only
# loom itself is worth optimizing: the rest would take longer to compile than it saves.
LOOM_ALONE := $(foreach crate,loom generator,--config profile.release.package.$(crate).opt-level=1)

test-loom:
	CARGO_PROFILE_RELEASE_OPT_LEVEL=0 RUSTFLAGS="--cfg loom" nice cargo test --release --locked \
		$(LOOM_ALONE) -p penstock-engine --lib model --target-dir target/loom

# Conformance and requests again, under ThreadSanitizer.
test-sanitize:
	scripts/sanitize

# Clippy does not link: an empty libFuzzer suffices, where cargo would compile one.
LIBFUZZER := target/libfuzzer.a

$(LIBFUZZER):
	mkdir -p $(@D)
	touch $@

# PENSTOCK_FUZZ_SECONDS for each target, 3 if it is not set. The compilers take longer than all of
# `make test-rust`, so it is a part of `make test-long`.
test-fuzz: $(LIBFUZZER)
	CUSTOM_LIBFUZZER_PATH=$(LIBFUZZER) \
		cargo clippy --manifest-path fuzz/Cargo.toml --target-dir target --locked -- -D warnings
	scripts/fuzz

test-python: build
	$(PYTEST) tests/python tests/xarray tests/anndata

test-cli: build
	$(PYTEST) tests/cli

# The oldest h5py that the package takes, with its HDF5 1.14.2, instead of the one that is installed. It has no
# wheel for Python 3.13.
OLDEST := target/oldest
test-oldest: build
	if $(BIN)/python -c 'import sys; sys.exit(sys.version_info >= (3, 13))'; then \
		$(MAKE) $(OLDEST)/h5py && PYTHONPATH=$(abspath $(OLDEST)) $(PYTEST) tests/dist/test_storage.py \
			tests/python/hdf5/datasets/test_datasets.py tests/python/hdf5/requests/test_dropped.py; \
	else echo 'test-oldest: SKIPPED: h5py 3.11 has no wheel for this Python'; fi

$(OLDEST)/h5py: | $(BIN)/python
	rm -rf $(OLDEST).partial
	nice $(BIN)/python -m pip install --quiet --no-deps --only-binary :all: --target $(OLDEST).partial \
		'h5py==3.11.*' 'numpy==1.26.*'
	mv $(OLDEST).partial $(OLDEST)

# Ranks and workers, each an interpreter of its own.
test-dist: build standin
	$(PYTEST) tests/dist
	scripts/standin-gpu $(PYTEST) tests/dist -m "$(STANDIN_MARKERS)"

# PENSTOCK_TEST_FAULTS random loads and saves.
test-faults: build
	$(PYTEST) tests/faults

# PENSTOCK_TEST_PROGRAMS random programs.
test-programs: build build-hdf5 standin
	$(PYTEST) tests/programs $(NOT_PARALLEL)
	scripts/standin-gpu $(PYTEST) tests/programs $(NOT_PARALLEL)

test-c: build standin
	$(PYTEST) tests/c
	scripts/standin-gpu $(PYTEST) tests/c

build-hdf5: build-hdf5-1.14.4 build-hdf5-2.2.0

# HDF5's versions, each with the MPI that it is built with.
ALL_PARALLEL := 1.14.4-mpich 1.14.4-openmpi 2.2.0-mpich 2.2.0-openmpi

build-hdf5-parallel: $(BIN)/cmake
	for pair in $${PENSTOCK_TEST_PARALLEL:-1.14.4-mpich}; do \
		nice scripts/build-hdf5 $${pair%-*} --$${pair#*-} || exit; \
	done

build-hdf5-1.14.4: $(BIN)/cmake
	nice scripts/build-hdf5 1.14.4

build-hdf5-2.2.0: $(BIN)/cmake
	nice scripts/build-hdf5 2.2.0 --threadsafe

# The driver on HDF5 1.14.4 and 2.2.0. Tests of device memory run on the stand-in, whether or not there is a
# GPU.
test-hdf5: test-hdf5-host test-hdf5-device

test-hdf5-host: build build-hdf5 standin
	$(PYTEST) tests/hdf5 $(NOT_PARALLEL)

test-hdf5-device: build build-hdf5 standin
	scripts/standin-gpu $(PYTEST) tests/hdf5 -k device $(NOT_PARALLEL)

# Programs of several MPI ranks, with each pair of PENSTOCK_TEST_PARALLEL, and PENSTOCK_TEST_MPI_PROGRAMS
# random ones.
PARALLEL := tests/hdf5/test_parallel.py tests/programs/test_parallel.py
NOT_PARALLEL := $(addprefix --ignore=,$(PARALLEL))

test-parallel: build build-hdf5-parallel standin
	scripts/standin-gpu $(PYTEST) $(PARALLEL)

test-packaging: build
	$(PYTEST) tests/packaging

# The examples of the manual, on the machine as it is and on the stand-in.
test-docs: build build-hdf5-1.14.4 standin
	$(PYTEST) tests/docs
	scripts/standin-gpu $(PYTEST) tests/docs -m "$(STANDIN_MARKERS)"

# Tests that need a GPU, or have another outcome on one; in test-long also the tests that need none.
test-standin: build standin
	scripts/standin-gpu $(PYTEST) tests/python tests/cli -m "$(STANDIN_MARKERS)"

# The stand-in GPU and the package are built into one folder, one after the other.
standin: build
	scripts/standin-gpu true

# The C programs under AddressSanitizer, the Python tests on allocators that check.
test-memory: build
	scripts/asan
	scripts/debug-malloc

# The tests that use torch, on the host and on the stand-in GPU. Torch is in a folder of its own, because new arrays
# of all other tests would be tensors if they found it. 3 GB are downloaded, once, if TORCH names no folder that has
# torch for CUDA 13. Hypothesis parses each module of torch that is not below a folder named site-packages.
TORCH ?= target/torch/site-packages
WITH_TORCH := PYTHONPATH=$(abspath $(TORCH))

torch: $(TORCH)/torch

test-torch: build standin torch
	$(WITH_TORCH) $(PYTEST) tests/torch tests/dist/test_torch.py tests/anndata/test_example.py \
		'tests/docs/test_pages.py::test_the_examples_of_a_page_run[tutorial/python.md]'
	$(WITH_TORCH) scripts/standin-gpu --torch $(PYTEST) tests/torch tests/anndata tests/dist/test_torch.py -m gpu
	$(WITH_TORCH) scripts/standin-gpu --torch $(PYTEST) tests/python -m torch

# The versions for which the stand-in has the functions of CUDA's runtime. Packages are unpacked beside their place, on
# the same file system.
$(TORCH)/torch: | $(BIN)/python
	rm -rf $(TORCH).partial
	mkdir -p $(TORCH).partial/tmp
	TMPDIR=$(abspath $(TORCH)).partial/tmp nice $(BIN)/python -m pip install --quiet --no-compile --no-cache-dir \
		--target $(TORCH).partial/lib torch==2.15.0 'safetensors>=0.8'
	mv $(TORCH).partial/lib $(TORCH)
	rm -r $(TORCH).partial

# Legate's wheel on the driver, and its arrays by penstock.dist.legate. It is not part of `make test`: 400 MB
# are downloaded, once.
LEGATE := target/legate

test-legate: build $(LEGATE)/installed
	PENSTOCK_TEST_LEGATE=$(LEGATE)/bin/python scripts/standin-gpu --preload-path $(PYTEST) tests/legate
	scripts/legate python -m pytest tests/legate/test_arrays.py

$(LEGATE)/installed: $(LEGATE)/wheels $(SOURCES)
	$(LEGATE)/bin/python -m pip install --quiet '.[legate]'
	touch $@

$(LEGATE)/wheels:
	$(PYTHON) -m venv $(LEGATE)
	$(LEGATE)/bin/python -m pip install --quiet legate-cu12==26.6.1 nvidia-cuda-runtime-cu12 pytest pytest-timeout
	touch $@

# The site of the manual: target/site/html by MkDocs and target/site/zensical by Zensical, each without a warning.
# `make site RUSTDOC=1` adds the documentation of the crates.
SITE := target/site
SITE_BIN := $(SITE)/venv/bin
RUST_PAGES := $(if $(RUSTDOC),target/doc)

.PHONY: site
site: export NO_MKDOCS_2_WARNING = 1
site: $(SITE)/venv/installed
	$(if $(RUSTDOC),nice cargo doc --no-deps --locked --quiet)
	$(SITE_BIN)/python scripts/site $(SITE)/docs $(RUST_PAGES:%=--rust %)
	$(SITE_BIN)/zensical build --strict --clean
	rm -rf $(SITE)/zensical
	mv $(SITE)/html $(SITE)/zensical
	$(SITE_BIN)/mkdocs build --strict

$(SITE)/venv/installed: docs/requirements.txt
	$(PYTHON) -m venv $(SITE)/venv
	$(SITE_BIN)/python -m pip install --quiet --requirement $<
	touch $@

# The wheels of WHEELS and the source distribution, in dist. They are compiled on any Linux for the C library
# of manylinux_2_28.
WHEELS ?= x86_64 aarch64
WHEEL_TOOLS := target/wheels/tools

wheels: $(WHEEL_TOOLS)/installed
	$(WHEEL_TOOLS)/bin/python scripts/wheels.py $(WHEELS)

$(WHEEL_TOOLS)/installed: scripts/wheel-tools.txt
	$(PYTHON) -m venv --clear $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/python -m pip install --quiet -r scripts/wheel-tools.txt
	touch $@

clean:
	rm -rf target $(VENV) dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# Before the package, whose tests need it, so that HDF5 need not wait for the package.
$(BIN)/cmake: | $(BIN)/python
	$(BIN)/python -m pip install --quiet 'cmake>=3.26'

$(INSTALLED): $(BIN)/python $(SOURCES) | $(BIN)/cmake
	$(BIN)/python -m pip install --quiet '.[test]'
	touch $@
