# `make help` lists the targets. What needs .venv first sets it up through pip and constraints.txt: demo with what
# autotune itself needs, everything else with what its tests need as well.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
TESTS := quick test test-all test-slow test-null-gpu test-browser test-ortmodule test-postgresql test-ray e2e
.PHONY: help setup setup-ortmodule setup-ray setup-null-gpu setup-browser setup-postgresql demo $(TESTS) check format wheel-test bench bench-peers bench-absent bench-witness bench-lengths bench-changes gpu gpu-wheels update-gold docs screenshots clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "%-16s %s\n", $$1, $$2}'

# Some machines tell Python to keep no compiled modules: each process of hundreds would compile torch's and ours anew.
unexport PYTHONDONTWRITEBYTECODE

# The last of what venv makes: one that failed halfway is made again.
$(BIN)/activate:
	$(PYTHON) -c 'import sys; sys.exit("autotune needs Python 3.11 or newer; name one with PYTHON=...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/activate
	$(BIN)/python -m pip install --no-compile --constraint constraints.txt --editable .
	touch $@

$(READY): pyproject.toml constraints.txt | $(BIN)/activate
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[test,dev]'
	touch $(INSTALLED) $@

setup: $(READY)  ## make the virtual environment

# In the checkout: no test reads or writes the user's own cache.
setup-ortmodule: $(READY)  ## make the environment of engine ortmodule in build/cache
	AUTOTUNE_CACHE=$(abspath build/cache) $(BIN)/autotune engines install ortmodule

setup-ray: $(READY)  ## install Ray into the virtual environment
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[test,dev,ray]'

# torch's CUDA build in an environment apart, on libraries in the place of NVIDIA's: see tests/fakes/null_gpu.
NULL_GPU_TORCH ?= 2.14.1
NULL_GPU_ENV := build/null-gpu/torch-$(NULL_GPU_TORCH)
setup-null-gpu: $(READY)  ## make the environment of the GPU without kernels, with torch NULL_GPU_TORCH
	$(BIN)/python tests/fakes/null_gpu/build.py $(NULL_GPU_ENV) --torch $(NULL_GPU_TORCH)

setup-browser:  ## install Debian's Chromium; needs root
	{ command -v chromium && command -v chromedriver; } >/dev/null || { $(INSTALL) chromium chromium-driver; }

setup-postgresql:  ## install Debian's PostgreSQL; needs root
	find /usr/lib/postgresql -name pg_ctl 2>/dev/null | grep -q . || { $(INSTALL) postgresql; }

INSTALL := apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends

demo: $(INSTALLED)  ## tune a real script on whatever this machine has, in some five minutes
	$(BIN)/python trials/run.py snippets

# Processes take tests of each other's at the end. One thread each, so that threads spinning at barriers do not take each
# other's core.
PYTEST := $(BIN)/python -m pytest -n $(shell env -u OMP_NUM_THREADS nproc) --dist worksteal
SERVED := tests/with_postgresql.sh $(PYTEST)
$(TESTS): export OMP_NUM_THREADS = 1
$(TESTS): export OMP_WAIT_POLICY = passive

QUICK := -m quick tests/unit tests/contract tests/docs
# $(call in_turn,A,B) runs commands A and B, and a third if there is one, even where one fails; what failed and what was
# not tested comes last.
LAST_WORDS := build/last-words.txt
in_turn = @mkdir -p build && rm -f $(LAST_WORDS); status=0; \
	$(1) --last-words $(LAST_WORDS) || status=1; \
	$(2) --last-words $(LAST_WORDS) || status=1; \
	$(if $(3),$(3) --last-words $(LAST_WORDS) || status=1;) \
	cat $(LAST_WORDS) 2>/dev/null; exit $$status

quick: $(READY)  ## the tests that need neither torch nor a process
	$(PYTEST) $(QUICK)

# What services there are differs from machine to machine.
test: $(READY)  ## all tests but the slow ones and those that need a service; the last lines name the services
	$(call in_turn,$(PYTEST) $(QUICK),$(PYTEST) tests -m "not quick and not slow" --no-services --durations 10)

ALL_SERVICES := $(addprefix --require ,browser ortmodule postgresql ray)
test-all: setup-browser setup-null-gpu setup-ortmodule setup-postgresql setup-ray  ## every test, with every service
	$(call in_turn,$(PYTEST) $(QUICK),$(SERVED) tests -m "not quick" $(ALL_SERVICES) --durations 25,$(ON_NULL_GPU) tests/gpu)

SLICE ?= 1/1
test-slow: $(READY)  ## Monte Carlo, exhaustive tests, and those that take their time; SLICE=3/10 for a part of them
	$(SERVED) tests -m slow --slice $(SLICE)

# Each process of tests has a device of its own.
NULL_GPU ?= h100-80gb
GPU_TESTS ?= tests/gpu
ON_NULL_GPU = sh -c '. $(NULL_GPU_ENV)/variables.sh && exec "$$@"' sh \
	env NULL_GPU=$(NULL_GPU) $(NULL_GPU_ENV)/$(PYTEST:$(VENV)/%=%)
test-null-gpu: setup-null-gpu  ## what is for a GPU, on one without kernels: NULL_GPU=rtx4090-24gb for another card
	$(ON_NULL_GPU) $(GPU_TESTS)

test-browser: $(READY) setup-browser  ## the report's page and the dashboard in Chromium
	$(PYTEST) -m browser --require browser

test-ortmodule: setup-ortmodule  ## engine ortmodule, with ONNX Runtime Training
	$(PYTEST) -m ortmodule --require ortmodule

test-postgresql: $(READY) setup-postgresql  ## stores and Grafana's queries, with a PostgreSQL server
	$(SERVED) -m postgresql --require postgresql

test-ray: setup-ray  ## launching on Ray clusters of this machine
	$(PYTEST) -n 0 -m ray --require ray

e2e: $(READY)  ## only the tests that run real scripts
	$(SERVED) -m "not slow" tests/e2e

check: $(READY)  ## lint, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## format and mend what ruff can mend
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

wheel-test: $(READY)  ## build the wheel, install it in an empty environment, tune a script outside the checkout
	PYTHON=$(PYTHON) VENV=$(abspath $(VENV)) bash tests/wheel_test.sh

# models.py and sidebyside.py are what some of the benchmarks share; noise.py is a step of the sittings (make gpu),
# exporting.py needs databases of studies, and absent_card.py measurements of others.
bench: export OMP_NUM_THREADS = 1
bench: export OMP_WAIT_POLICY = passive
bench: export AUTOTUNE_CACHE = $(abspath build/cache)
bench: $(READY)  ## run the benchmarks; figures are ratios measured side by side
	for benchmark in $(filter-out %/models.py %/sidebyside.py %/noise.py %/exporting.py %/absent_card.py %/absent_witness.py %/lengths.py %/memory_changes.py,$(wildcard tests/benchmarks/*.py)); do \
		echo "== $$benchmark" && $(BIN)/python $$benchmark || exit 1; \
	done
	echo "== tests/benchmarks/peak.py --engine inductor" && $(BIN)/python tests/benchmarks/peak.py --engine inductor

# What is measured is kept in build/peers, and the same command goes on where it stopped; PEERS='--budget 9m' ends a
# workload's sitting then. See tests/benchmarks/peers/__main__.py.
WORKLOADS ?= charlm-miniature bert-miniature gpt2-miniature
PEERS ?=
bench-peers: export OMP_NUM_THREADS = 1
bench-peers: export OMP_WAIT_POLICY = passive
bench-peers: $(READY)  ## hold checkpointing, torch.compile, batch finders and others against each other in WORKLOADS
	for workload in $(WORKLOADS); do \
		$(BIN)/python -m tests.benchmarks.peers $$workload $(PEERS) || [ $$? = 75 ] || exit 1; \
	done

# timm as SHEET's authors had it, and a reader of spreadsheets, apart from the virtual environment: no test may need them.
# SHEET and TIMM are fetched by hand, see tests/benchmarks/absent_card.py.
SHEET ?= fake_tensor.xlsx
TIMM ?= pytorch-image-models/train.py
ABSENT ?= --half unseen --models 100 --jobs 2
build/timm: constraints.txt
	rm -rf $@
	$(BIN)/python -m pip install --quiet --no-deps --constraint constraints.txt --target $@ torchvision openpyxl et_xmlfile
	$(BIN)/python -m pip install --quiet --no-deps --target $@ timm==1.0.9
bench-absent: $(READY) build/timm  ## peaks predicted for a GPU that is not there, against SHEET, with timm's script TIMM
	PYTHONPATH=$(abspath build/timm) OMP_NUM_THREADS=1 $(BIN)/python tests/benchmarks/absent_card.py $(SHEET) $(TIMM) $(ABSENT)

bench-witness: setup-null-gpu  ## memory predicted for a GPU that is not there, against torch's allocator on one without kernels
	sh -c '. $(NULL_GPU_ENV)/variables.sh && exec "$$@"' sh \
		env NULL_GPU=$(NULL_GPU) $(NULL_GPU_ENV)/bin/python tests/benchmarks/absent_witness.py $(WITNESS)

bench-lengths: setup-null-gpu  ## the same for batches of twelve lengths, under engine aot too
	sh -c '. $(NULL_GPU_ENV)/variables.sh && exec "$$@"' sh \
		env NULL_GPU=$(NULL_GPU) $(NULL_GPU_ENV)/bin/python tests/benchmarks/lengths.py

bench-changes: setup-null-gpu  ## what changes of a script do to its peak as predicted, against the same changes made by hand
	sh -c '. $(NULL_GPU_ENV)/variables.sh && exec "$$@"' sh \
		env NULL_GPU=$(NULL_GPU) $(NULL_GPU_ENV)/bin/python tests/benchmarks/memory_changes.py $(WITNESS)

# With the interpreter that is there, which brings torch for its CUDA device. PART is first, study, peers or rest, and
# FOLDER what sittings go on from: see trials/sittings/command.py.
PART ?=
BUDGET ?=
FOLDER ?=
gpu:  ## on a machine with a GPU: find out what is not known yet; PART=first BUDGET=9m
	$(PYTHON) -m trials.sittings $(PART) $(addprefix --budget ,$(BUDGET)) $(addprefix --folder ,$(FOLDER))

gpu-wheels: $(READY)  ## download what such a machine may lack where it has no network
	$(BIN)/python -m trials.sittings.wheels

update-gold: $(READY)  ## write the golden files anew
	$(BIN)/python -m pytest -m quick tests/unit --update-gold

docs: $(READY)  ## write the generated parts of the pages anew
	$(BIN)/python docs/generate.py

screenshots: $(READY)  ## take the pages' pictures anew, of a real study; needs Chromium
	$(BIN)/python docs/screenshots.py

clean:  ## remove the virtual environment and what tools left behind
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
