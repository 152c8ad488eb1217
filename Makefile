# Two commands: `make up` runs everything here, `make test` proves it. Neither needs root, Docker or a key.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: up test test-long clis browser check chaos bench spec format clean

up: $(VENV)/run
	@$(BIN)/longshore up

# Three at a time also on two cores: much of the time is waiting. Those that share what one module sets up (xdist_group)
# stay together.
test: check
	-@$(MAKE) --no-print-directory browser
	$(BIN)/pytest -n 3 --dist loadgroup -m "not long"

# What `make test` leaves out because it takes minutes: more of the slow CLI agents, more pools and signals.
test-long: $(VENV)/dev
	$(BIN)/pytest -n 2 --dist loadgroup -m long

# The CLI agents, pinned, from npm into .clis; a part of them: make clis CLIS="claude codex"
clis: | $(VENV)/bin/python
	@$(BIN)/python deploy/clis/install.py $(CLIS)

# A Chromium for tests/browser: one on the PATH, else npm's into .browser. Without one those tests fail, and only they.
browser: | $(VENV)/bin/python
	@$(BIN)/python deploy/browser/install.py

# Lint, types and import rules.
check: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The long version of tests/chaos: 2,000 messages, 50 sessions, every kind of death.
chaos: $(VENV)/dev
	LONGSHORE_CHAOS=full $(BIN)/pytest tests/chaos -s -o timeout=3600

bench: $(VENV)/dev
	$(BIN)/python -m bench

# Every row of docs/features.md with the tests that prove it.
spec: $(VENV)/dev
	@$(BIN)/python -m tests.support.spec

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .clis .browser *.egg-info build

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Longshore needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/run: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing (once) ..."
	@$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing (once) ..."
	@$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/run
