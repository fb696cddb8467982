# Commands for users. Everything is installed into .venv; nothing else is changed.

# python3, or if it is too old, the newest other one
usable = $(shell $(1) -c 'import sys; sys.version_info >= (3, 11) and print("$(1)")' 2>/dev/null)
newer = $(or $(call usable,python3.14),$(call usable,python3.13),$(call usable,python3.12),$(call usable,python3.11))
ifndef PYTHON
PYTHON := $(or $(call usable,python3),$(newer),python3)
INSTEAD := $(filter-out python3,$(PYTHON))
endif
CORES ?= all
# one more than cores, because some tests mostly wait: for jobs, and for the lock of measurements
PROCESSES ?= $(shell expr $$(nproc) + 1)

comma := ,
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
# CuPy is built for one CUDA major version: the one that the driver supports
CUDA := $(filter 12 13,$(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p'))
# What a run needs, and all that tests and documentation need, too. Each has a file that is newer than the last install.
RUN_EXTRAS := workflow,mpich$(if $(CUDA),$(comma)cuda$(CUDA))
EXTRAS := $(RUN_EXTRAS),analysis,test,lint,docs
RUNNABLE := .venv/runnable-$(VERSION)
INSTALLED := .venv/installed-$(VERSION)
SOURCES := pyproject.toml CMakeLists.txt $(wildcard snakemake_executor_plugin_cluster/*.py hpcmm/*/__init__.py hpcmm/kernels/*.c hpcmm/kernels/*/*.c)

export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help setup run profile reference docs test test-all lint clean

help:
	@echo 'make run      install, then measure and write the report'
	@echo '              SCALE=full: the long sweeps'
	@echo '              CORES=4: fewer cores; VERBOSE=1: all messages'
	@echo 'make profile  make run, with Nsight Compute for GPU variants'
	@echo 'make docs     build the documentation into docs/build'
	@echo 'make test     install, then run all tests but the slow ones'
	@echo '              PROCESSES=1: one test process'
	@echo 'make test-all install, then run all tests, as CI does'
	@echo '              (those on Slurm need tests/slurm up)'
	@echo 'make setup    install everything into .venv'
	@echo '              PYTHON=python3.12: with this Python'
	@echo 'make lint     ruff, snakefmt and snakemake --lint'
	@echo 'make clean    remove results, but not results/reference'
	@echo 'make reference  write the published report and numbers again'
	@echo '              FILE=timings.h5: publish this file first'

setup: $(INSTALLED)

$(RUNNABLE): CHOSEN = $(RUN_EXTRAS)
$(INSTALLED): CHOSEN = $(EXTRAS)
$(RUNNABLE) $(INSTALLED): $(SOURCES)
	@test -n '$(call usable,$(PYTHON))' || { echo "hpcmm needs Python 3.11 or newer, and $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1 || echo no Python): make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 1; }
	@test -e $(RUNNABLE) || { \
	    echo 'creating .venv with Python $(VERSION)$(INSTEAD:%= (%$(comma) python3 is too old))'; \
	    $(PYTHON) -m venv --clear .venv; }
	@echo 'installing hpcmm and its dependencies into .venv,'
	@echo 'one or two minutes the first time; log: .venv/install.log'
	@.venv/bin/python -m pip install --progress-bar off --disable-pip-version-check --no-compile \
	    --editable '.[$(CHOSEN)]' >.venv/install.log 2>&1 || { tail -n 40 .venv/install.log >&2; exit 1; }
# A run starts several processes, and with PYTHONDONTWRITEBYTECODE, as in many containers, each would compile everything
# again. pip compiles on one core, and also the tests of packages. Some packages have files that are no Python.
	@.venv/bin/python -m compileall -q -j 0 -x '/tests?/' .venv/lib hpcmm >/dev/null || true
	@echo 'installed; for the command hpcmm: . .venv/bin/activate'
	@touch $(RUNNABLE) $@

profile: PROFILE := profile=true
run profile: CHANGES = $(strip $(if $(SCALE),scale=$(SCALE)) $(PROFILE))
run profile: $(RUNNABLE)
	@hpcmm run --cores $(CORES) $(if $(VERBOSE),--verbose) $(if $(CHANGES),--config $(CHANGES))

reference: setup
	python docs/published.py $(FILE)

docs: setup
	@python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env --write-all docs docs/build
	@echo 'documentation: $(CURDIR)/docs/build/index.html'

# More than six processes would need too much memory of a GPU. Compiled test files are kept, because each process would
# take some seconds to compile all of them.
test-all: SLOW = --slow
test test-all: setup
	env -u PYTHONDONTWRITEBYTECODE python -m pytest \
	    --numprocesses $(PROCESSES) --maxprocesses 6 --dist loadfile --no-loadscope-reorder $(SLOW)

lint: setup
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile
	python tests/lint_workflow.py

# A workflow that runs here has its host and process in a file, which it removes at its end.
clean:
	@if [ -e .snakemake/hpcmm/run ] && read -r host process started <.snakemake/hpcmm/run && \
	    { [ "$$host" != "$$(uname -n)" ] || [ -d "/proc/$$process" ]; }; then \
	    echo "make clean: a run is using results/ (process $$process on $$host); end it first," \
	        'or remove .snakemake/hpcmm/run if that process is gone' >&2; \
	    exit 1; \
	fi
	find results -mindepth 1 -maxdepth 1 ! -name reference -exec rm -rf {} +
