# The only list of commands: people and CI run the same. `make help` prints it.
# Needed on the machine: Linux, Python >= 3.11 with venv, Rust, a C compiler. Everything else is set up here, in
# virtual environments of the project (.venv, .venv-ft, .venv-312 …) and in target/.

PYTHON ?= python3
ARGS ?=
MINUTES ?= 5
BIN := .venv/bin
RUST_SOURCES := Cargo.toml $(wildcard Cargo.lock) $(shell find crates \( -name '*.rs' -o -name '*.sql' -o -name '*.lua' -o -name Cargo.toml \) -not -path '*/tests/*' -not -path '*/benches/*')
# How programs find the free-threaded environment, when there is one with that stamp.
WITH_FREE_THREADED = $(shell test -e .venv-ft/$(STAMP) && echo CLUTCH_TEST_FT_PYTHON=$(CURDIR)/.venv-ft/bin/python)
# Most tests wait for other processes, so two for each core leave less of it idle than one.
SIDE_BY_SIDE = --numprocesses $(shell echo $$((2 * $$(nproc)))) --dist worksteal --durations 30
INSTALL = bin/python -m pip install --quiet --disable-pip-version-check
MATURIN = PIP_QUIET=1 VIRTUAL_ENV=$(CURDIR)/$(1) CARGO_TARGET_DIR=$(CURDIR)/$(2) $(CURDIR)/$(BIN)/maturin develop
# Tests of the core use the profile of the extensions that only tests use: what both depend on is compiled once.
CARGO_TEST = cargo test --quiet --profile checked --workspace --exclude clutch-py
TESTED_WHEEL = $(CURDIR)/target/tested-wheel
# Which build of the extension is made: .released, as it is published, or .built, which is enough for tests and made in
# a third of the time.
STAMP = .released

# Whether what is published or measured is compiled by counts of which code runs often (tools/train.sh): faster by a tenth.
# TRAINED=no builds in half the time.
TRAINED = yes
# Of an environment, and its build's flags.
COUNTS = $(CURDIR)/target/counts/$(notdir $(1)).profdata
BY_COUNTS = $(if $(filter yes,$(TRAINED)),RUSTFLAGS="$(RUSTFLAGS) -Cprofile-use=$(call COUNTS,$(1))")
TRAIN = $(if $(filter yes,$(TRAINED)),MATURIN=$(CURDIR)/$(BIN)/maturin tools/train.sh $(call COUNTS,$(1)) $(1)/bin/python)

# Thousands of short processes import clutch: from its bytecode, as where it is installed.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: force help build built builds core-tests other-pythons free-threaded chromium redis test test-apart test-unit test-redis test-core test-stubs \
	test-free-threaded test-stdlib test-python test-browser test-wheel test-sdist test-all-pythons suites conformance celery-suite framework-suites demo soak bench \
	bench-jobs bench-celery bench-hostile mutants lint fmt docs wheels sdist version clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: .venv/.released .venv/.test ## .venv with clutch in it, the extension in release mode, and what the tests need

built: .venv/.built .venv/.test $(TESTED_WHEEL)

# A compiler leaves a core idle while it links, an installer waits for the network. Tests tell what did not compile. The
# extension of another interpreter replaces this one's in target/, so the wheel is made before.
builds: .venv/.deps ## all that `make test` needs, side by side
	@$(MAKE) --no-print-directory suites chromium redis & found=$$!; \
	$(MAKE) --no-print-directory built; status=$$?; \
	$(MAKE) --no-print-directory other-pythons & others=$$!; \
	$(MAKE) --no-print-directory .venv/.lint core-tests || status=1; \
	wait $$found; wait $$others || status=1; exit $$status

core-tests:
	@$(CARGO_TEST) --no-run

other-pythons soak test-python: STAMP = .built

other-pythons: free-threaded
	@if python=$$(tools/find-python.sh 3.13); \
	then $(MAKE) --no-print-directory .venv-313/.built VENV_PYTHON=$$python; fi

free-threaded: .venv/.deps ## .venv-ft: the same on a free-threaded CPython, which is installed when missing
	@if python=$$(tools/get-free-threaded-python.sh 3.13); \
	then $(MAKE) --no-print-directory .venv-ft/$(STAMP) VENV_PYTHON=$$python; \
	else echo "no free-threaded Python here: the tests that need one are skipped"; fi

chromium: ## a browser for the tests that need one, when missing
	@{ command -v chromium && command -v chromedriver; } >/dev/null || { [ "$$(id -u)" = 0 ] && { apt-get update && \
		apt-get install -y --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1; } \
		|| echo "Chromium is missing: its tests are skipped; install it with: sudo apt-get install chromium chromium-driver"

redis: ## a Redis for the tests that need one, when missing
	@command -v redis-server >/dev/null || { [ "$$(id -u)" = 0 ] && { apt-get update && \
		apt-get install -y --no-install-recommends redis-server; } >/dev/null 2>&1; } \
		|| echo "Redis is missing: its tests are skipped; install it with: sudo apt-get install redis-server"

test-redis: ## the tests of stores on each Redis and Valkey that can be had
	@PYTHON=$(PYTHON) tools/test-redis-versions.sh

test: ## every test: Rust core, stub file, standard library's, free-threaded, Python suite; says how long each took
	@failed=; times=; for part in builds test-apart test-free-threaded test-python; \
		do since=$$(date +%s); $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; \
		times="$$times, $$part $$(($$(date +%s) - since)) s"; done; echo "make test:$${times#,}"; \
		[ -z "$$failed" ] || { echo "make test failed in:$$failed (see above)"; exit 1; }

# Each of these leaves a core idle for half of its time.
test-apart: ## the Rust core, the stub file and the standard library's cases, side by side
	@$(MAKE) --no-print-directory test-stdlib & stdlib=$$!; failed=; \
	$(MAKE) --no-print-directory test-core || failed="$$failed test-core"; \
	$(MAKE) --no-print-directory test-stubs || failed="$$failed test-stubs"; \
	wait $$stdlib || failed="$$failed test-stdlib"; \
	[ -z "$$failed" ] || { echo "make test-apart failed in:$$failed (see above)"; exit 1; }

test-unit: built ## in seconds: what starts no process; ARGS="-k words" picks tests
	$(BIN)/python -m pytest --quiet tests/unit $(ARGS)

test-core: ## the Rust core alone
	$(CARGO_TEST)

test-stubs: .venv/.built .venv/.lint ## _core.pyi against the built extension
	$(BIN)/python -m mypy.stubtest clutch._core --concise

test-free-threaded: ## the suite over the profiles, on the free-threaded interpreter
	@if [ -e .venv-ft/.built ]; then echo .venv-ft/bin/python -m pytest $(SIDE_BY_SIDE) tests/profiles; \
		.venv-ft/bin/python -m pytest $(SIDE_BY_SIDE) tests/profiles --quiet; \
	else echo "test-free-threaded: skipped, no .venv-ft (make free-threaded says why)"; fi

test-stdlib: .venv/.built ## CPython's own cases for process pools, over a Pool, on Python 3.13
	@if python=$$(tools/find-python.sh 3.13); then \
		$(MAKE) --no-print-directory .venv-313/.built VENV_PYTHON=$$python && \
		echo .venv-313/bin/python -m pytest tests/stdlib && .venv-313/bin/python -m pytest tests/stdlib --quiet -r fE; \
	else echo "test-stdlib: skipped, there is no Python 3.13 here (tools/find-python.sh 3.13)"; fi

test-python: built ## the Python suite; ARGS="-k words" picks tests
	CLUTCH_TEST_WHEELS=$(TESTED_WHEEL) $(WITH_FREE_THREADED) $(BIN)/python -m pytest $(SIDE_BY_SIDE) $(ARGS)

test-browser: built chromium ## of the Python suite, what runs in a real browser
	$(BIN)/python -m pytest tests/e2e/serve/test_serve_browser.py tests/e2e/lab/test_page_browser.py

test-wheel: built ## the wheels in dist/ that an interpreter is here for: each in an empty environment
	CLUTCH_TEST_WHEELS=$(CURDIR)/dist $(BIN)/python -m pytest tests/e2e/test_wheel.py

suites: ## what others test with, when missing: h2spec, gunicorn's request corpus, Autobahn's, Django's, frameworks' and Celery's cases
	@PYTHON=$(PYTHON) tools/get-suites.sh

conformance: built suites ## of the Python suite: these, and our own matrix of ambiguous requests
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/conformance $(ARGS)

celery-suite: built suites ## Celery's own integration tests on Clutch, all of the list; POOL=custom: in Celery's worker
	CLUTCH_TEST_CELERY=all CLUTCH_TEST_CELERY_POOL=$(or $(POOL),clutch) $(BIN)/python -m pytest --timeout 3600 \
		tests/conformance/test_celery_cases.py $(ARGS)

framework-suites: built suites ## the tests of Starlette, FastAPI and MCP's SDK through a served app, in about four minutes
	CLUTCH_TEST_FRAMEWORKS=all $(BIN)/python -m pytest --timeout 900 tests/conformance/test_framework_suites.py $(ARGS)

test-all-pythons: .venv/.built ## a smoke run on each other Python found: 3.12 to 3.15
	@status=0; for series in 3.12 3.13 3.14 3.15; do \
		name=$$(echo $$series | tr -d .); \
		if python=$$(tools/find-python.sh $$series); then \
			$(MAKE) --no-print-directory .venv-$$name/.built VENV_PYTHON=$$python && \
			.venv-$$name/bin/python -m pytest $(SIDE_BY_SIDE) tests/unit tests/profiles tests/stdlib --quiet || status=1; \
		else echo "test-all-pythons: $$series skipped, not installed"; fi; \
	done; exit $$status

demo: .venv/.quick .venv/.demo ## processes beside threads on this machine, in two minutes: clutch bench profiles --scale small
	@$(BIN)/clutch bench profiles --scale small $(ARGS)

soak: built free-threaded ## mixed load while workers are killed, stopped and replaced; MINUTES=5, ARGS="--seed S"
	@$(WITH_FREE_THREADED) $(BIN)/python -m soak --minutes $(MINUTES) $(ARGS)

bench: build free-threaded ## the comparisons, as ratios measured side by side; ARGS="serve tail --quick" selects
	@command -v redis-server >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get install -y redis-server >/dev/null 2>&1; } \
		|| echo "redis-server is missing: rows over Redis are left out; install it with: sudo apt-get install redis-server"
	@cargo bench --quiet --package clutch-pool --bench pingpong --no-run
	@$(WITH_FREE_THREADED) $(BIN)/python -m benches $(ARGS)

bench-jobs: build redis ## of the comparisons, those of jobs that decide, side by side in one run; ARGS="--quick"
	@$(BIN)/python -m benches jobs drain-default sqlite-drain-default drain sqlite-threads enqueue --exact $(ARGS)

bench-celery: build redis .venv/.bench ## clutch work beside celery worker with the same app, side by side in one run; ARGS="--quick"
	@$(BIN)/python -m benches celery $(ARGS)

bench-hostile: build .venv/.bench ## attacks, with memory and descriptors; the matrix of ambiguous requests beside peers
	@$(BIN)/python -m benches.hostile $(ARGS)

mutants: ## small changes to the core's pure machines, each of which is to make a test fail; ARGS="--count 100 --seed S"
	@cargo mutants --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-mutants
	@$(PYTHON) tools/mutants.py $(ARGS)

lint: .venv/.built .venv/.lint ## formatting, clippy, ruff, pyright
	cargo fmt --all --check
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo clippy --quiet --workspace --all-targets -- -D warnings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --warnings

fmt: .venv/.lint ## formats Rust and Python
	cargo fmt --all
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

docs: .venv/.built ## writes the generated pages anew
	$(BIN)/python -m clutch.config > docs/config.md
	$(BIN)/python tools/api_page.py > docs/api.md
	$(BIN)/python tools/events_page.py > docs/events.md

# Tasks begin otherwise from 3.12 on, and nobody has all interpreters.
TRAINERS = $(if $(filter yes,$(TRAINED)),.venv/bin/python $(if $(shell tools/find-python.sh 3.13 2>/dev/null),.venv-313/bin/python))

wheels: .venv/.release ## manylinux wheels into dist/, for each supported Python that is here; STRICT=1: all must be
	$(if $(TRAINERS),@$(MAKE) --no-print-directory .venv/.test $(patsubst %/bin/python,%/.deps,$(filter .venv-%,$(TRAINERS))) VENV_PYTHON="$$(tools/find-python.sh 3.13)")
	TRAINERS="$(TRAINERS)" STRICT=$(STRICT) MATURIN=$(BIN)/maturin tools/build-wheels.sh 3.11 3.12 3.13 3.13t 3.14 3.14t abi3
	$(BIN)/twine check --strict dist/*.whl

sdist: .venv/.release ## the source distribution into dist/
	$(BIN)/maturin sdist --out dist
	$(BIN)/twine check --strict dist/*.tar.gz

test-sdist: sdist ## whether a wheel can be built of it alone
	@folder=$$(mktemp -d); \
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $$folder dist/clutch-$$($(MAKE) --silent version).tar.gz; \
	status=$$?; ls $$folder; rm -r $$folder; exit $$status

version: ## the version, as tags name it
	@sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml

clean: ## removes all that was built, the environments too
	rm -rf target .venv .venv-ft .venv-3* .conformance .pytest_cache .ruff_cache dist
	find python -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: a warm run installs and builds nothing.
.venv/.deps: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	.venv/$(INSTALL) --upgrade pip 'maturin>=1.16,<2'
	@touch $@

.venv/.built: .venv/.deps $(RUST_SOURCES)
	$(call MATURIN,.venv,target) --profile checked --extras greenlet,uvloop,reload
	@rm -f .venv/.released .venv/.quick
	@touch $@

# Of what is compiled already.
$(TESTED_WHEEL): .venv/.built
	@rm -rf $@
	$(BIN)/maturin build --quiet --profile checked --compatibility linux --interpreter $(BIN)/python --out $@
	@touch $@

# Optimized, without the pass over the whole program that takes a third of the time: close to what is published.
.venv/.quick: .venv/.deps $(RUST_SOURCES)
	$(call MATURIN,.venv,target) --profile quick --extras greenlet,uvloop,reload
	@rm -f .venv/.released
	@touch .venv/.built $@

# Whether the last build was trained: otherwise one that was not would stay.
target/.trained: force
	@mkdir -p target; echo "$(TRAINED)" | cmp -s - $@ || echo "$(TRAINED)" > $@

force:

.venv/.released: .venv/.deps target/.trained $(RUST_SOURCES) | .venv/.test
	$(call TRAIN,.venv)
	$(call BY_COUNTS,.venv) $(call MATURIN,.venv,target) --release --extras greenlet,uvloop,reload
	@touch .venv/.built .venv/.quick $@

.venv/.test: .venv/.deps
	.venv/$(INSTALL) --group test --group test-e2e
	@touch $@

.venv/.demo .venv/.lint .venv/.bench .venv/.release: .venv/.deps
	.venv/$(INSTALL) --group $(@:.venv/.%=%)
	@touch $@

# Environments of other interpreters. In one folder the core is compiled once for all. What is measured (.released) has a
# folder of its own.
# An interpreter that PyO3 does not know gets the extension of the stable ABI.
STABLE = $(if $(filter 315,$(1)),PYO3_USE_ABI3_FORWARD_COMPATIBILITY=1)
CONSTRAINED = $(if $(filter ft,$(1)),PIP_CONSTRAINT=$(CURDIR)/tools/constraints-free-threaded.txt)

.venv-%/.deps: pyproject.toml tools/constraints-free-threaded.txt
	@test -x .venv-$*/bin/python || $(VENV_PYTHON) -m venv .venv-$*
	.venv-$*/$(INSTALL) --upgrade pip
	$(call CONSTRAINED,$*) .venv-$*/$(INSTALL) --group test
	@touch $@

.venv-%/.built: .venv-%/.deps .venv/.deps $(RUST_SOURCES)
	$(call CONSTRAINED,$*) $(call STABLE,$*) $(call MATURIN,.venv-$*,target) --profile checked $(if $(call STABLE,$*),--features abi3)
	@rm -f .venv-$*/.released
	@touch $@

.venv-%/.released: .venv-%/.deps .venv/.deps target/.trained $(RUST_SOURCES)
	$(call STABLE,$*) $(call TRAIN,.venv-$*) $(if $(call STABLE,$*),-- --features abi3)
	$(call BY_COUNTS,.venv-$*) $(call CONSTRAINED,$*) $(call STABLE,$*) $(call MATURIN,.venv-$*,target/$*) --release $(if $(call STABLE,$*),--features abi3)
	@touch .venv-$*/.built $@

.PRECIOUS: .venv-%/.deps .venv-%/.built .venv-%/.released
