# Two commands: `make up` runs everything here, `make test` proves it. Neither needs root, Docker or a key.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# Tests start hundreds of processes: without compiled files each would compile all of our modules again.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest
TIMES  := .pytest_cache/times
# Four at a time also on two cores: much of the time is waiting. Those that share what one module sets up (xdist_group)
# stay together.
PARALLEL := -n 4 --dist loadgroup
# The contract suites that run on fakes.
FAKES  := tests/contract/test_providers.py tests/contract/test_channels.py

.PHONY: up test test-fast test-all test-rest test-times clis browser check chaos bench spec format clean

up: $(VENV)/run
	@$(BIN)/longshore up

# The inner loop: no servers, no processes.
test-fast: check
	@LONGSHORE_LEFT_OUT="Left out: whatever needs a server, a process or a browser. Run it with: make test" \
	  $(PYTEST) -n 2 -m "not long" tests/unit $(FAKES)

test: check
	-@$(MAKE) --no-print-directory browser
	@LONGSHORE_LEFT_OUT="Left out: the second database, the slower CLI agents, all boundaries, long storms. Run them with: make test-all" \
	  $(PYTEST) $(PARALLEL) -m "not long"

test-all: test test-rest

# What `make test` leaves out, but for `make chaos`.
test-rest: $(VENV)/dev
	@LONGSHORE_LEFT_OUT="Left out: the storm of 2,000 messages, every boundary over every wire. Run them with: make chaos" \
	  $(PYTEST) $(PARALLEL) -m long

# Where the time of `make test` goes: by level, file, fixture and test.
test-times: $(VENV)/dev
	-$(PYTEST) $(PARALLEL) -m "not long" -q -p tests.support.times --times=$(TIMES)
	@$(BIN)/python -m tests.support.times $(TIMES)

# The CLI agents, pinned, from npm into .clis; a part of them: make clis CLIS="claude codex"
clis: | $(VENV)/bin/python
	@$(BIN)/python deploy/clis/install.py $(CLIS)

# A Chromium for tests/browser: one on the PATH, else npm's into .browser. Without one those tests fail, and only they.
browser: | $(VENV)/bin/python
	@$(BIN)/python deploy/browser/install.py

# Lint, types, import rules, and that tests name rows which exist.
check: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m tests.support.spec --brief

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
