# The commands of the README. Each sets up what it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Real data sets are used where they are there; nothing needs them.
ifneq ($(wildcard ../shared/data),)
export ACCELEGRAD_DATA ?= $(abspath ../shared/data)
endif
# One BLAS thread a test process: two processes share two cores, and results do not depend on the machine's core count.
TESTING := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python
PYTEST  := $(TESTING) -m pytest
SPREAD  := -n 2 --dist loadgroup

.PHONY: setup demo test test-cpus check lint fuzz bench docs wheel-check release-check clean

# Two stages: what the demo needs, and the tools of developers on top.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(VENV)/.installed: pyproject.toml lab/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; PYTHON=... names another one" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e . -e ./lab
	touch $@

$(VENV)/.ready: $(VENV)/.installed
	$(PIP) -e '.[dev]' -e './lab[test]'
	touch $@

setup: $(VENV)/.ready

demo: $(VENV)/.installed
	$(BIN)/python -m accelegrad reproduce --quick --out report

# Fast tests come first (tests/conftest.py): most breaks show within a minute.
test: setup
	$(PYTEST) $(SPREAD)

# The numeric tests again but for the slow ones, with BLAS, NumPy and Numba made to compute as on older CPUs: each file
# as on one of them; CPUS=--all: as on each.
test-cpus: setup
	$(TESTING) tests/other_cpus.py $(CPUS) $(SPREAD) -q -m 'not slow'

check: lint
	$(PYTEST) $(SPREAD) -m 'not slow'

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Random problems against every proof, with new seeds; FUZZ takes options: make fuzz FUZZ='--seed 7'.
MINUTES ?= 5
fuzz: setup
	$(TESTING) tests/proofs/fuzz.py --minutes $(MINUTES) --processes 2 $(FUZZ)

# Leave the machine alone meanwhile; BENCH takes options: make bench BENCH='--quick'.
bench: setup
	$(BIN)/python -m accelegrad bench --out report/bench $(BENCH)

# The examples run, warnings are errors, links are followed; nothing of it needs the network.
docs: setup
	$(PIP) -e '.[docs]'
	$(BIN)/python -m accelegrad warmup --quiet  # else examples print that they wait for it
	$(BIN)/python -m sphinx -E -q -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html
	@echo "docs: docs/_build/html/index.html"

# The distributions as users get them: in dist/, checked, and the wheel tried by itself. release-check adds all fast tests
# in an empty environment, and each extra in one of its own (half an hour; it downloads torch and JAX).
wheel-check: setup
	$(PIP) -e '.[release]'
	$(TESTING) tests/release.py

release-check: setup
	$(PIP) -e '.[release]'
	$(TESTING) tests/release.py --full

clean:
	rm -rf $(VENV) docs/_build docs/auto_examples docs/generated build dist report
