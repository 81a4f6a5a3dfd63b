# Everything runs from a fresh clone with make and Python 3.11 or later; set-up happens by itself.
#
#   make demo DOCS=some/folder     the document review, with a person in the loop
#   make test                      all tests            (ARGS="-k word" is passed to pytest)
#   make check                     linters, types, layers
#   make bench                     benchmarks           (ARGS=--quick, or ARGS="--only growth")
#   make soak                      all tests, the property tests for much longer
#   make servers                   what some tests need besides Python packages; they are skipped without
#   make requirements              write the map from requirements to tests again
#   make clean                     remove the environment and all caches

VENV   ?= .venv
ARGS   ?=
# How many tests run at once, each in a process of its own.
JOBS   ?= auto
DOCS   ?=
# The cases of other engines that the benchmarks compare with; not part of this repository.
PEERS  ?= ../shared/bench/peers
# The first interpreter on the path that is new enough; `make PYTHON=/path/to/python` overrides it.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	if $$name -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then echo $$name; break; fi; done)

RUN   := $(VENV)/bin/python
STAMP := $(VENV)/.set-up
SERVERS := .servers/.set-up

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check bench soak servers requirements clean

help:
	@sed -n 's/^# \{0,1\}//p' $(MAKEFILE_LIST) | sed -n '1,10p'

setup: $(STAMP)

# Made again when what is to be installed changes; only then is anything downloaded.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later with venv on the path;" \
		"install one (Debian: python3-venv), or say: make PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(RUN) || { echo "making $(VENV) with $(PYTHON)"; $(PYTHON) -m venv $(VENV); }
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(STAMP)
	$(RUN) examples/document_review $(if $(DOCS),--docs "$(DOCS)") $(ARGS)

# Where CI is set, what can be had of the servers is installed first.
test: $(STAMP) $(if $(CI),$(SERVERS))
	$(RUN) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

check: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) tests/typing/check.py
	$(VENV)/bin/lint-imports --no-cache

bench: $(STAMP)
	$(RUN) benchmarks/bench.py --peers "$(PEERS)" $(ARGS)

soak: $(STAMP)
	HYPOTHESIS_PROFILE=soak $(RUN) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

servers: $(STAMP)
	@$(RUN) tests/servers/install.py
	@touch $(SERVERS)

$(SERVERS): tests/servers/install.py tests/servers/npm/package.json | $(STAMP)
	@$(RUN) tests/servers/install.py
	@touch $@

requirements: $(STAMP)
	$(RUN) tests/architecture/requirements_map.py

clean:
	rm -rf $(VENV) .bench .servers build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
