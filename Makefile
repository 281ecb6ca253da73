# Everything runs inside .venv, which the first target that needs it creates.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install check test crash compat bench all clean

install: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Headrace needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP)
	$(BIN)/python -m pytest -m "not oracle"

crash: $(STAMP)
	HEADRACE_CRASH_CYCLES=200 HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest tests/crash

compat: $(STAMP)
	$(BIN)/python -m pytest -m oracle

bench: $(STAMP)
	$(BIN)/python -m bench

all: check test crash compat

clean:
	rm -rf $(VENV) build *.egg-info
