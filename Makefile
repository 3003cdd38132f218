# make demo        build a corpus, train, translate and score a bounded-memory transformer
# make discourse   the same corpus with and without context: contrastive sets, document BLEU
# make quick       the tests to run while working: models with random weights, under a minute
# make test        what CI runs: check, docs and unit, side by side
# make check       lint, formatting, types
# make unit        every test but those of --full and --contract
# make docs        build the site in build/site
# make serve-docs  show the site at http://localhost:8000 while its pages are written
# make fuzz        CASES=1000 SEED=1: further bad inputs of all commands
# make full        every test but those of --contract, in all cases; the Triton kernels at all lengths and sizes
# make contract    all of tests/contract: every architecture through every command, kills, long inputs
# make coverage    every test but those of --full and --contract, with the branches of fairseq_memattn that none takes
# make wheelhouse  PYTHON_VERSION=3.12 OUT=folder: what a machine without a network needs beside torch
# make env         the environment (.venv) for users, which make demo and discourse make when it is missing
# make develop     with what the tests and the site need, which the other targets make when it is missing
#
# TORCH            another build of torch, for example  make env TORCH=torch==2.13.0+cu130
# PYTHON           the Python to build on, 3.11 or 3.12
# EXTRAS           of this package that make env installs: data unless set
# WORKERS          processes that run tests side by side, 2 unless set

PYTHON ?= python3
# The build of torch that make env was given is kept by the other targets.
ifeq ($(origin TORCH),undefined)
TORCH := $(or $(shell cat .venv/torch 2>/dev/null),torch==2.13.0)
else
CHOSEN := $(TORCH)
endif
EXTRAS ?= data
WORKERS ?= 2
CASES ?= 1000
SEED ?= 1
PYTHON_VERSION ?= 3.12
OUT ?= outputs/wheelhouse-$(PYTHON_VERSION)
VENV := .venv
BIN := $(VENV)/bin
# A mark for each build of torch: asking for another one installs it.
READY := $(VENV)/ready-$(subst =,,$(TORCH))
DEVELOP := $(VENV)/develop
# A module is compiled when it is first imported, whatever the environment says.
export PYTHONDONTWRITEBYTECODE =
# uv where it is installed, pip elsewhere.
UV := $(shell command -v uv 2>/dev/null)
INSTALL := $(if $(UV),$(UV) pip install --python $(BIN)/python,$(BIN)/python -m pip --disable-pip-version-check install --no-compile)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Models and layers with random weights; no trainings, no compilation, no further processes.
QUICK := tests/attention tests/checkpoints tests/cli tests/evaluation \
	tests/fairseq/test_modules.py tests/fairseq/test_t5mem.py \
	--ignore tests/attention/test_window.py --ignore tests/attention/test_abc_gradcheck.py \
	--deselect tests/checkpoints/test_old_checkpoints.py::test_it_is_trained_on \
	-k "not compile and not distributed"

.DEFAULT_GOAL := help
.PHONY: help env develop wheelhouse demo discourse quick check docs serve-docs unit full test fuzz contract coverage clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# A package that has been removed since is installed again; EXTRAS that are given are installed.
env: $(READY)
	@$(BIN)/python -c 'import importlib.util, sys; sys.exit(None in map(importlib.util.find_spec, ("torch", "fairseq")))' \
		|| { rm -f $(READY); $(MAKE) $(READY); }
	$(if $(filter file,$(origin EXTRAS)),,$(INSTALL) -q -c $(VENV)/constraints.txt --no-build-isolation -e '.[$(EXTRAS)]')
	@echo "The environment is ready: . $(VENV)/bin/activate, then memattn doctor"

$(READY): constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' || echo \
		"fairseq-fixed has no wheel for Python 3.11; it compiles for three to five minutes the first time."
	sed '/^torch==/d' constraints.txt > $(VENV)/constraints.txt
	rm -f $(VENV)/ready-*
	$(INSTALL) $(TORCH)
	$(INSTALL) -c $(VENV)/constraints.txt setuptools wheel Cython numpy
	$(INSTALL) -c $(VENV)/constraints.txt --no-build-isolation --no-deps fairseq-fixed
	@# Python 3.12 warns of fairseq's escape sequences when it compiles them.
	$(BIN)/python -W ignore -m compileall -q -j 0 $(VENV)/lib/python3*/site-packages/fairseq $(VENV)/lib/python3*/site-packages/fairseq_cli
	$(INSTALL) -c $(VENV)/constraints.txt hydra-core omegaconf sacrebleu regex tqdm bitarray \
		scikit-learn cffi packaging
	$(INSTALL) -c $(VENV)/constraints.txt --no-build-isolation -e '.[$(EXTRAS)]'
	$(if $(CHOSEN),echo '$(CHOSEN)' > $(VENV)/torch)
	touch $@

develop: $(DEVELOP)

$(DEVELOP): $(READY)
	$(INSTALL) -c $(VENV)/constraints.txt --no-build-isolation -e '.[data,dev,docs]'
	touch $@

wheelhouse: $(READY)
	BIN=$(BIN) recipes/wheelhouse.sh "$(PYTHON_VERSION)" "$(OUT)"

demo: $(READY)
	$(BIN)/python recipes/run.py demo

discourse: $(READY)
	$(BIN)/python recipes/run.py discourse

check: $(DEVELOP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DEVELOP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

serve-docs: $(DEVELOP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

quick: $(DEVELOP)
	$(PYTEST) $(PARALLEL) -q $(QUICK)

unit: $(DEVELOP)
	$(PYTEST) $(PARALLEL) -q

full: $(DEVELOP)
	$(PYTEST) $(PARALLEL) --full

test: $(DEVELOP)
	@$(MAKE) --no-print-directory --jobs 3 check docs unit

fuzz: $(DEVELOP)
	$(PYTEST) -n $(WORKERS) -q tests/fuzz --fuzz-cases $(CASES) --fuzz-seed $(SEED)

contract: $(DEVELOP)
	$(PYTEST) $(PARALLEL) --contract tests/contract

coverage: $(DEVELOP)
	rm -f .coverage .coverage.*
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest $(PARALLEL)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

clean:
	rm -rf build *.egg-info .pytest_cache .mypy_cache .ruff_cache .coverage .coverage.*
