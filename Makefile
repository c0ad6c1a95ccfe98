# The developer's commands; `make` alone lists them. Each does its own set-up, in .venv and once: nothing to activate.

PYTHON ?= python3
# More arguments for pytest, as in `make test PYTEST_ARGS="-k sender -x"`.
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# uv shares one cache between checkouts and links out of it, which for torch saves gigabytes and minutes.
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python

# Composer and torch are thousands of modules, which each test that starts a program imports: compiled once, 5 s in place
# of 20.
unexport PYTHONDONTWRITEBYTECODE

# What .venv holds, as stamps: `dev` is all but torch, `composer` adds Composer and torch (about 5 GB).
UV := $(VENV)/.stamp-uv
DEV := $(VENV)/.stamp-dev
COMPOSER := $(VENV)/.stamp-composer

# The exit status by which pytest says that it found no test.
NO_TESTS := 5

# Two targets at once would set up one .venv twice.
.NOTPARALLEL:
.PHONY: help demo test test-all test-integration test-stack test-gpu check servers clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(DEV) ## train a small model and show what is recorded
	$(BIN)/otel-logger demo

test: $(DEV) ## the fast tests: units, contracts, architecture; no torch, no server
	$(PYTEST) -n 2 tests --ignore=tests/integration -m "not integration and not composer and not collector and not s3 and not gpu and not stack" $(PYTEST_ARGS)

test-all: test test-integration ## `test`, then everything that needs real Composer, a real Collector, Prometheus or S3 server

test-integration: $(COMPOSER) ## only what `test-all` adds to `test`
	@$(PYTHON) tools/servers.py || echo "make: going on without what is missing; the tests that need it are skipped" >&2
	$(PYTEST) tests -m "(integration or composer or collector or s3) and not gpu and not stack" $(PYTEST_ARGS)

test-stack: $(DEV) servers ## the tests against a whole stack: Prometheus, Loki, Tempo
	@$(PYTEST) tests -m stack $(PYTEST_ARGS) || { status=$$?; [ $$status -eq $(NO_TESTS) ] || exit $$status; \
	echo "test-stack: there are no tests of this tier yet; nothing was tested"; }

test-gpu: $(COMPOSER) ## the tests that need a CUDA device; where there is none they are listed as not run
	@if $(BIN)/python -c "import sys, torch; sys.exit(not torch.cuda.is_available())"; then \
		$(PYTEST) tests -m gpu $(PYTEST_ARGS); \
	else \
		echo "test-gpu: no CUDA device here; not run:"; \
		$(PYTEST) tests -m gpu --collect-only -q $(PYTEST_ARGS); \
	fi || { status=$$?; [ $$status -eq $(NO_TESTS) ] || exit $$status; \
	echo "test-gpu: there are no tests of this tier yet; nothing was tested"; }

check: $(DEV) ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tools

servers: ## build the real Collector, Prometheus and S3 server, once per machine, into the cache outside this tree (needs Go)
	$(PYTHON) tools/servers.py

clean: ## remove .venv and what tools left here; keeps recorded runs and the cache of servers
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(UV):
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10))" || { \
		echo "make: $(PYTHON) is absent or older than Python 3.10; install one, or name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "make: '$(PYTHON) -m venv' failed; on Debian and Ubuntu install it with: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv>=0.8"
	@touch $@

$(DEV): pyproject.toml $(UV)
	$(INSTALL) --editable ".[demo]" --group test --group lint
	@touch $@

$(COMPOSER): $(DEV)
	$(INSTALL) --editable ".[demo,composer]" --group test --group lint
	@touch $@
