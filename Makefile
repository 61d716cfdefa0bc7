# The book in two commands: `make book` builds it, `make test` proves it.
# `make` alone lists what there is. Works with GNU make 3.81 and any POSIX shell.
#
# Every target writes a stamp below _build/stamps and does nothing while the stamp is
# newer than what it was made from. The environment is the exception: tools/setup.py
# --check compares contents, so that a moved folder or a broken Python is seen as well.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: help setup data export notebooks book serve test lint reference experiments \
	bench distributed slides pdf instructor assignments grade clean FORCE
unexport PYTHONPATH PYTHONHOME
export PYTHON

# Extra words for pytest, such as ARGS="-k attention -x", or for the benchmark. The
# tests run on all cores, at most four; ARGS="-n 0" runs one after the other.
ARGS ?=
# `make book EDITION=student` builds the edition without solutions, in _build/student.
EDITION ?=
# Exercises of one assignment: `make assignments PICK="ch02:1,3 step5:all" NAME=week3`.
PICK =
NAME =
# The folder that `make grade` grades.
SUBMISSIONS =
# Where `make serve` listens.
PORT ?= 8000

RUN := .venv/bin/python
STAMPS := _build/stamps
READY := .venv/.complete

CHAPTERS := $(sort $(wildcard chapters/*.md))
PACKAGE := $(sort $(wildcard tinygpt/*.py))
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb))
CORPORA := $(shell find data -type f ! -name '.*' | sort)
PAGES := $(shell find book -type f ! -name '.*' ! -path '*/__pycache__/*' | sort)
PRESS := tools/pages.py pyproject.toml
# What writes the data of the live figures into the built book.
LIVE := $(sort $(wildcard tools/live_*.py))

# A file that went away leaves no newer date behind, so each stamp lists the files that
# it saw. `gone` answers FORCE when one of them is missing, `altered` also when one came.
gone = $(if $(filter-out $(2),$(shell cat $(STAMPS)/$(1) 2>/dev/null)),FORCE)
altered = $(call gone,$(1),$(2))$(if $(filter-out $(shell \
	cat $(STAMPS)/$(1) 2>/dev/null),$(2)),FORCE)

help: ## list these targets
	@echo "TinyGPT: make TARGET"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## create .venv with the locked environment, or repair it

$(READY): $(shell $(RUN) tools/setup.py --check >/dev/null 2>&1 || echo FORCE)
	@for python in "$$PYTHON" python3.11 python3; do \
	  if "$$python" -c 'import json' >/dev/null 2>&1; then \
	    exec "$$python" tools/setup.py; \
	  fi; \
	done; \
	echo "No Python was found: install Python 3.11 (on Debian: sudo apt-get install" \
	  "python3.11 python3.11-venv), then run the same command again." >&2; \
	exit 1

data: $(STAMPS)/data ## fetch what is missing in data/ and verify every corpus

# The fetcher is built in a chapter, so the package comes first.
$(STAMPS)/data: $(READY) tools/data.py $(CORPORA) $(call gone,data,$(CORPORA)) \
		| $(STAMPS)/export
	@mkdir -p $(STAMPS)
	$(RUN) -m tools.data
	@find data -type f ! -name '.*' | sort > $@

export: $(STAMPS)/export ## write the package tinygpt/ from the saved cells of chapters/

$(STAMPS)/export: $(READY) tools/export.py $(PRESS) $(CHAPTERS) $(PACKAGE) \
		$(call gone,export,$(CHAPTERS) $(PACKAGE))
	@mkdir -p $(STAMPS)
	$(RUN) -m tools.export
	@ls chapters/*.md tinygpt/*.py > $@

notebooks: $(STAMPS)/notebooks ## write and execute notebooks/ from chapters/

$(STAMPS)/notebooks: $(STAMPS)/data $(STAMPS)/export tools/notebooks.py $(PRESS) \
		$(CHAPTERS) $(NOTEBOOKS) $(call gone,notebooks,$(CHAPTERS) $(NOTEBOOKS))
	@mkdir -p $(STAMPS)
	$(RUN) -m tools.notebooks
	@ls chapters/*.md notebooks/*.ipynb > $@

ifneq ($(filter-out student,$(EDITION)),)
$(error EDITION is '$(EDITION)'; the one edition besides the full book is 'student')
endif

book: $(if $(EDITION),$(STAMPS)/$(EDITION),$(STAMPS)/book) ## execute every page and build the book
	@echo "Read it with 'make serve$(if $(EDITION), EDITION=$(EDITION))', or open" \
	  "$(if $(EDITION),_build/$(EDITION)/)_build/html/index.html in a browser."

SOURCES := $(CHAPTERS) $(PAGES) $(NOTEBOOKS) $(LIVE) _config.yml _toc.yml CHANGELOG.md
BUILT := $(if $(wildcard _build/html/index.html),,FORCE)

$(STAMPS)/book: $(STAMPS)/data $(STAMPS)/export tools/book.py $(PRESS) $(SOURCES) \
		$(call altered,book,$(SOURCES)) $(BUILT)
	@mkdir -p $(STAMPS)
	$(RUN) -m tools.book --if-changed
	@printf '%s\n' $(SOURCES) > $@

pdf: $(if $(EDITION),$(STAMPS)/$(EDITION),$(STAMPS)/book) ## print the whole book as one PDF and link it from the index
	$(RUN) -m tools.pdf $(if $(EDITION),--root _build/$(EDITION))

slides: $(STAMPS)/notebooks ## write slides of the lectures to _build/slides
	$(RUN) -m tools.slides

# The student's edition takes over what the full book printed, so that one comes first.
$(STAMPS)/student: $(STAMPS)/book $(STAMPS)/notebooks tools/edition.py tools/leaks.py \
		$(if $(wildcard _build/student/_build/html/index.html),,FORCE)
	$(RUN) -m tools.edition student
	@touch $@

serve: $(if $(EDITION),$(STAMPS)/$(EDITION),$(STAMPS)/book) ## serve the book on this machine and open it in a browser
	@$(RUN) -m tools.serve --port $(PORT) $(if $(EDITION),--root _build/$(EDITION))

test: $(STAMPS)/book ## re-run every notebook alone, compare every number, test the rest
	$(RUN) -m pytest -n auto $(ARGS)

lint: $(READY) ## check style, and that everything generated is fresh
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m tools.export --check
	$(RUN) -m tools.notebooks --check
	$(RUN) -m tools.numbers --check

instructor: $(READY) ## add nbgrader to .venv, for assignments and grading
	@$(RUN) tools/setup.py --instructor

assignments: instructor $(STAMPS)/export ## write release, source, key and points of assignments
	$(RUN) -m tools.assignments $(if $(PICK),--pick $(PICK)) $(if $(NAME),--name $(NAME))

grade: instructor $(STAMPS)/data ## grade SUBMISSIONS=folder: marks and a report for each student
	$(RUN) -m tools.grade $(if $(SUBMISSIONS),"$(SUBMISSIONS)") \
	  $(if $(NAME),--name $(NAME)) $(ARGS)

reference: $(STAMPS)/data ## make the runs of Chapter 2 and Step 6, or continue
	$(RUN) -m tools.reference

experiments: $(STAMPS)/data ## run what is missing of the pages' experiments
	$(RUN) -m tools.experiments

# What it is compared with is no part of the locked environment, and moves none of it.
bench: $(STAMPS)/data ## measure against what people would use instead; ARGS="memory" runs one
	@$(RUN) -c "import tokenizers, transformers" 2>/dev/null || $(RUN) -m pip install --quiet \
	  --disable-pip-version-check --no-build-isolation --constraint requirements.lock \
	  --editable ".[bench]" || echo "Not all of it could be installed; the rest runs."
	$(RUN) -m benchmarks $(ARGS)

distributed: $(STAMPS)/data ## train with one and with two processes, and compare
	$(RUN) -m benchmarks.distributed $(ARGS)

clean: ## remove what was built; .venv and data/ stay
	rm -rf _build build .pytest_cache .ruff_cache .hypothesis

FORCE:
