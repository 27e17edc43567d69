# One command for each thing.  `make help` lists them.
# Set TORCH_INDEX to take torch from another index, for example the one with CPU builds (README).

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One thread for each process, no progress bars from inside notebooks, the kernel of this environment.
RUN := OMP_NUM_THREADS=1 TQDM_DISABLE=1 TOKENIZERS_PARALLELISM=false \
	JUPYTER_PLATFORM_DIRS=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python

.PHONY: help book test test-fast lint format bench clean

help: ## list these commands
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1  @/' | column -t -s@

$(READY): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed; name one with make PYTHON=..."; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@if [ -n "$(TORCH_INDEX)" ]; then \
		echo "installing torch from $(TORCH_INDEX)"; \
		$(BIN)/pip install --quiet --index-url $(TORCH_INDEX) "$$(grep '^torch==' requirements.txt)"; fi
	@echo "installing requirements.txt"
	@$(BIN)/pip install --quiet --progress-bar on -r requirements.txt
	@$(BIN)/pip install --quiet --no-deps --editable .
	@touch $(READY)

book: $(READY) ## execute every chapter that changed and build _build/html/index.html
	@$(RUN) tools/build_book.py

test: $(READY) ## set up if needed, then lint, and test the package, every notebook and the book
	@$(MAKE) --no-print-directory lint
	@$(RUN) tools/build_book.py
	@$(RUN) -m pytest -n 2 --dist loadfile

test-fast: $(READY) ## the tests of the package alone
	@$(RUN) -m pytest -n 2 --dist loadfile --ignore tests/book

lint: $(READY) ## check style, import floors and notebooks
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/python tools/check_notebooks.py

format: $(READY) ## format the code and strip the notebooks
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/python tools/check_notebooks.py --strip

bench: $(READY) ## measure against peers and write bench/README.md
	@$(RUN) -m bench

clean: ## remove the environment and everything built
	rm -rf $(VENV) _build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
