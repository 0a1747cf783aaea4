# Everything a person runs. `make demo` needs Python 3.11 or newer, make and a C compiler, and nothing else.
SHELL := /bin/sh
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := requirements.txt requirements-dev.txt reliability/trainer/pyproject.toml $(sort $(shell find reliability/trainer -name '*.py' -not -path '*/build/*'))
RUN_HASH := $(shell cat $(INSTALLED) | sha256sum | cut -c1-12)
RUN_STAMP := $(VENV)/.run-$(RUN_HASH)
DEV_STAMP := $(VENV)/.dev-$(RUN_HASH)
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -p tests.plugins.no_skips
FAST := not engine and not broker and not postgres and not browser and not slow
SERVICES := engine or broker or postgres or browser
FIGURES := $(wildcard tests/web/test_p*.py)
# Two halves side by side, one a core; each shows its output when it has ended.
HALVES := +@$(MAKE) --no-print-directory -k -j2 --output-sync=target

.PHONY: help demo up venv check bench test-packages
.PHONY: test test-with-services test-without-services test-fast test-fast-figures test-fast-others

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

$(BIN)/python:
	@.ci/make-venv "$(PYTHON)" "$(VENV)"

# Stamps carry the digest of what is installed: a change of requirements installs anew, a checkout does not.
$(RUN_STAMP): | $(BIN)/python
	@echo "Installing what the product runs on (once) ..."
	@$(PIP) -r requirements.txt && $(PIP) --no-deps --force-reinstall ./reliability/trainer
	@rm -rf reliability/trainer/build reliability/trainer/*.egg-info $(VENV)/.run-* && touch $@

$(DEV_STAMP): | $(RUN_STAMP)
	@echo "Installing what the tests need (once) ..."
	@$(PIP) -r requirements-dev.txt
	@rm -f $(VENV)/.dev-* && touch $@

demo: $(RUN_STAMP) ## Dashboard, five local nodes and a guarded job on this machine; Ctrl-C ends all
	@exec $(BIN)/python manage.py demo

up: $(RUN_STAMP) ## The product on this machine: broker, web, controller, beat
	@exec $(BIN)/python manage.py up

venv: $(DEV_STAMP) ## The virtual environment with everything for development

test-packages:
	@.ci/test-packages

test: $(DEV_STAMP) test-packages ## All tests; as root on Debian it installs what they need
	$(HALVES) test-with-services test-without-services

test-with-services test-without-services: $(DEV_STAMP)
	$(PYTEST) --durations=40 -m "$(if $(filter test-with-services,$@),$(SERVICES),not ($(SERVICES)))"

test-fast: $(DEV_STAMP) ## The quick tests, which need no engine, broker, browser or PostgreSQL (under a minute)
	$(HALVES) test-fast-figures test-fast-others

test-fast-figures: $(DEV_STAMP)
	$(PYTEST) -m "$(FAST)" tests/domain $(FIGURES)

test-fast-others: $(DEV_STAMP)
	$(PYTEST) -m "$(FAST)" tests/services $(filter-out $(FIGURES),$(wildcard tests/web/test_*.py))

check: $(DEV_STAMP) ## Style, types, import rules, migrations, settings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check

bench: $(DEV_STAMP) test-packages ## Measure recovery and start times on this machine
	$(BIN)/python -m bench
