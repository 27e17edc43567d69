# One command for each thing.  `make help` lists them.
#   PORT=...         where make serve shows the book
#   PYTHON=...       the Python that makes .venv, when it is missing
#   ALL=1            make test: what did not change since it passed, too
#   TORCH_INDEX=...  take torch from this index, for example the one with CPU builds (README)

# 3.11 first: the version that the pinned set is tried with most.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		>/dev/null 2>&1 && echo $$p && break; done)
PORT ?= 8000
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One thread per process, and no warning from jupyter_core about where its folders will move.
RUN := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false JUPYTER_PLATFORM_DIRS=1 $(BIN)/python

STYLE := $(RUN) tools/build/spent.py style -- env
# What passed is noted for the next time, which a fresh clone of continuous integration has not.
NOTES := $(if $(ALL),$(if $(CI),,--unchanged=run),--unchanged=skip)
PYTEST := $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(NOTES)
OF_BOOK := tests/book tests/browser tests/notebooks
OF_EXERCISES := tests/exercises tests/classroom

.PHONY: help book serve test test-fast test-package test-exercises test-book peers lint format exercises exercises-nbgrader drift soak bench clean

help: ## list these commands
	@sed -n -E 's/^([a-z-]+):[^#]*## (.*)$$/\1 \2/p' Makefile | \
		while read name text; do printf '  make %-18s %s\n' "$$name" "$$text"; done

$(READY): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed: make PYTHON=..."; exit 1; }
	@$(PYTHON) tools/build/spent.py set-up -- $(PYTHON) tools/machine/set_up.py --venv $(VENV) --torch-index "$(TORCH_INDEX)"
	@touch $(READY)

book: $(READY) ## execute the chapters that changed and build _build/html/index.html
	@$(RUN) -m tools.build.build_book

serve: $(READY) ## show the book at http://127.0.0.1:8000 (PORT=...), built again on save
	@$(RUN) tools/machine/serve.py --port $(PORT)

test: $(READY) lint book ## check style, then test all that depends on a change (ALL=1: everything)
	@$(PYTEST)

test-fast: $(READY) ## test the package and the exercises, without notebooks, pages and browser
	@$(PYTEST) $(foreach folder,$(OF_BOOK),--ignore $(folder))

test-package: $(READY) lint ## a third of make test: style, the package, ranks
	@$(PYTEST) $(foreach folder,$(OF_BOOK) $(OF_EXERCISES),--ignore $(folder))

test-exercises: $(READY) ## a third of make test: exercises and grading
	@$(PYTEST) $(OF_EXERCISES)

test-book: book ## a third of make test: notebooks, pages and widgets
	@$(PYTEST) $(OF_BOOK)

peers: $(READY) ## install peft, trl and lm-eval, and compare with them
	@$(BIN)/pip install --quiet -r requirements-peers.txt
	@$(RUN) -m pytest --unchanged=run -k "peft or trl or lm_eval" tests/model tests/labs/tuning tests/labs/evaluate

lint: $(READY) ## check style, import floors, notebooks and generated pages
	@$(STYLE) $(BIN)/ruff check .
	@$(STYLE) $(BIN)/ruff format --check --quiet .
	@$(STYLE) $(BIN)/mypy --no-error-summary
	@$(STYLE) $(BIN)/lint-imports --no-cache --no-logo
	@$(STYLE) $(RUN) -m tools.check.check_notebooks
	@$(STYLE) $(RUN) -m tools.check.check_text
	@$(STYLE) $(RUN) tools/pages/setup_cells.py --check
	@$(STYLE) $(RUN) -m tools.pages.exercises --check
	@$(STYLE) $(RUN) tools/pages/api_pages.py --check
	@$(STYLE) $(RUN) -m tools.pages.hardware_card --check
	@$(STYLE) $(RUN) -m tools.pages.reference_card --check
	@$(STYLE) $(RUN) -m tools.pages.layout_page --check
	@$(STYLE) $(RUN) -m tools.pages.syllabi --check
	@$(STYLE) $(RUN) -m tools.pages.kernel --check
	@$(STYLE) $(RUN) -m tools.pages.look --check
	@$(STYLE) $(RUN) -m tools.check.lint_scripts

format: $(READY) ## format the code, strip the notebooks, write the generated pages
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(RUN) tools/pages/setup_cells.py
	@$(RUN) -m tools.pages.exercises
	@$(RUN) -m tools.check.check_notebooks --strip
	@$(RUN) tools/pages/api_pages.py
	@$(RUN) -m tools.pages.hardware_card
	@$(RUN) -m tools.pages.reference_card
	@$(RUN) -m tools.pages.layout_page
	@$(RUN) -m tools.pages.syllabi
	@$(RUN) -m tools.pages.kernel
	@$(RUN) -m tools.pages.look

exercises: $(READY) ## write the learners' notebooks from exercises/solutions
	@$(RUN) -m tools.pages.exercises

exercises-nbgrader: $(READY) ## write a course folder for nbgrader into _build/nbgrader
	@$(RUN) -m tools.pages.nbgrader_course _build/nbgrader

drift: $(READY) ## execute all chapters and right answers on kernels of other processors; list words that then are wrong
	@$(RUN) -m tools.check.drift run
	@$(RUN) -m tools.check.drift exercises
	@$(RUN) -m tools.check.drift

soak: $(READY) ## end ranks, runs and the capstone at random, try five seeds, and measure a recorded loss again
	@$(RUN) -m pytest tests/parallel/test_soak.py tests/parallel/test_crash.py --runs 100
	@$(RUN) -m pytest -n 2 tests/exercises/test_gates.py tests/test_nutshell.py tests/train/test_fluency.py tests/classroom/test_losses.py tests/classroom/test_recorded.py tests/classroom/test_batch.py tests/classroom/test_hostile.py tests/labs/scale/test_laws_parametric.py tests/labs/real/test_server_faults.py --seeds 5
	@$(RUN) -m pytest tests/labs/capstone/test_capstone.py --seeds 10
	@$(RUN) -m pytest -n 2 tests/browser/test_every_widget.py tests/browser/test_pages_chapters.py tests/browser/test_pages_exercises.py --seeds 5

bench: $(READY) ## measure against peers and write bench/README.md
	@$(RUN) -m bench

clean: ## remove the environment and everything built
	rm -rf $(VENV) _build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
