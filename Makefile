# What one can do here. `make help` lists it.
.DEFAULT_GOAL := help
.PHONY: help install dev demo test test-all test-slow test-oldest check lock wheel jar clean

VENV := .venv
BIN := $(VENV)/bin
# Files run in the order of tests/conftest.py: the longest first, not those with the most tests.
PYTEST := $(BIN)/python -m pytest -q --dist loadfile --no-loadscope-reorder
# Tests keep their compiled modules, also where Python is told to write none: compiling takes 10 s per process.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := setup.cfg pyproject.toml scripts/install.sh $(wildcard models/*/pyproject.toml)

help: ## Say what one can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## Make the environment in .venv: what README and quickstart need (locked versions)
	@$(BIN)/python -I -c 'import cli' 2>/dev/null || { rm $<; $(MAKE) --no-print-directory $<; }

dev: $(VENV)/.dev ## Add all extras and the tools for tests and checks to .venv (7 GB)
	@$(BIN)/python -I -c 'import cli, pytest' 2>/dev/null || { rm $<; $(MAKE) --no-print-directory $<; }

$(VENV)/.installed: requirements-install.lock $(SOURCES)
	@bash scripts/install.sh $(VENV) $<
	@touch $@
	@echo "ready; next: source $(BIN)/activate"

$(VENV)/.dev: requirements.lock requirements-install.lock $(SOURCES)
	@bash scripts/install.sh $(VENV) $<
	@touch $(VENV)/.installed $@

demo: install ## Index the example corpus and ask it a question
	@cd examples && env -u SPARTA_INDEX $(abspath $(BIN))/sparta demo
	@echo "  (in the folder examples, with the environment: cd examples && source ../.venv/bin/activate)"

test: dev ## Run the fast tests, two at a time
	@$(PYTEST) -n 2 -m "not slow and not release"

test-all: dev ## Run all tests but those of releases: also those against Pyserini, of crashes and of whole trainings
	@$(PYTEST) -n 3 -m "not release"

test-slow: dev ## Run the tests of releases: each extra in a fresh environment, the container (half an hour, a network)
	@$(PYTEST) -n 3 -m release -rsP

test-oldest: dev ## Run the tests that use them with the oldest supported versions (in build/oldest; a network)
	@bash scripts/test_oldest.sh $(BIN)

check: dev ## Lint, types, import directions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/check_style.py
	@$(BIN)/python scripts/check_docs.py

lock: dev ## Write both lists of locked versions; with UPGRADE=--upgrade, of the newest versions
	@bash scripts/lock.sh $(UPGRADE)

wheel: dev ## Build the wheel in dist/
	@$(BIN)/uv build --quiet --wheel --python $(BIN)/python --out-dir dist .

jar: ## Rebuild the Lucene jar (needs a JDK of at least 21, and Maven)
	@bash java/build.sh

clean: ## Remove what was built, but not the environment
	@rm -rf build dist java/target examples/sparta-index .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
