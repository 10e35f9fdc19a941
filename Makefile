# What one can do here. `make help` lists it.
.DEFAULT_GOAL := help
.PHONY: help install demo test test-all check wheel jar clean

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadfile

help: ## Say what one can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## Make the environment in .venv (locked versions)
	@$(BIN)/python -I -c 'import cli' 2>/dev/null || { rm $<; $(MAKE) --no-print-directory $<; }

$(VENV)/.installed: requirements.lock setup.cfg pyproject.toml scripts/install.sh
	@bash scripts/install.sh $(VENV)
	@touch $@

demo: install ## Index the example corpus and ask it a question
	@cd examples && env -u SPARTA_INDEX $(abspath $(BIN))/sparta demo

test: install ## Run the fast tests, two at a time
	@$(PYTEST) -m "not slow"

test-all: install ## Run all tests, also those against Pyserini, of crashes and of whole trainings
	@$(PYTEST)

check: install ## Lint, types, import directions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/check_style.py
	@$(BIN)/python scripts/check_docs.py

wheel: install ## Build the wheel in dist/
	@$(BIN)/uv build --quiet --wheel --python $(BIN)/python --out-dir dist .

jar: ## Rebuild the Lucene jar (needs a JDK of at least 21, and Maven)
	@bash java/build.sh

clean: ## Remove what was built, but not the environment
	@rm -rf build dist java/target examples/sparta-index .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
