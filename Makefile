# make up: install what a run needs and run it. make test, make lint: the checks. make venv: the full development environment.
# Arguments for a run: make up ARGS="--steps 6 --no-ui"

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := pyproject.toml constraints.txt
TESTS ?= tests

.PHONY: up test lint venv format clean

up: $(VENV)/.run
	$(BIN)/spade-actors up $(ARGS)

test: $(VENV)/.dev
	OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(TESTS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

venv: $(VENV)/.dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is older than Python 3.11; name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' || \
		{ echo "make: $(PYTHON) has no ensurepip; install its venv package or name another: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(SOURCES) | $(BIN)/python
	$(INSTALL) -e '.[learner]'
	@touch $@

$(VENV)/.dev: $(SOURCES) | $(BIN)/python
	$(INSTALL) -e '.[learner,dev]'
	@touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
