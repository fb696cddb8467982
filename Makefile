# Commands for users. Everything is installed into .venv; nothing else is changed.

PYTHON ?= python3
CORES ?= all

comma := ,
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# CuPy is built for one CUDA major version: the one that the driver supports
CUDA := $(filter 12 13,$(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p'))
EXTRAS := workflow,mpich,test,lint,docs$(if $(CUDA),$(comma)cuda$(CUDA))
INSTALLED := .venv/installed-$(VERSION)
SOURCES := pyproject.toml CMakeLists.txt $(wildcard snakemake_executor_plugin_cluster/*.py hpcmm/*/__init__.py hpcmm/kernels/*.c hpcmm/kernels/*/*.c)

export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help setup run profile reference docs test lint clean

help:
	@echo 'make run      set up, then run the experiment of config.yaml on this machine'
	@echo '              SCALE=full for the long sweeps; CORES=4 to use fewer cores'
	@echo 'make profile  like make run; also profile each GPU variant with Nsight Compute, if it is installed'
	@echo 'make docs     set up, then build the documentation into docs/build'
	@echo 'make reference  rewrite the published report and the numbers of README.md and docs/ from the published run;'
	@echo '              FILE=timings.h5 publishes that file first'
	@echo 'make test     set up, then test'
	@echo 'make setup    install everything into .venv (PYTHON=python3.12 selects the Python)'
	@echo 'make lint     ruff, snakefmt and snakemake --lint'
	@echo 'make clean    remove the results of runs, but not results/reference'

setup: $(INSTALLED)

$(INSTALLED): $(SOURCES)
	@test -e $@ || { echo 'creating .venv with Python $(VERSION)'; $(PYTHON) -m venv --clear .venv; }
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

profile: PROFILE := profile=true
run profile: CHANGES = $(strip $(if $(SCALE),scale=$(SCALE)) $(PROFILE))
run profile: setup
	@snakemake --cores $(CORES) --rerun-incomplete --quiet host reason rules $(if $(CHANGES),--config $(CHANGES))
	@printf 'report: %s\n' "$$PWD/results/report.html"

reference: setup
	python docs/published.py $(FILE)

docs: setup
	@python -m sphinx --fail-on-warning --keep-going --quiet docs docs/build
	@echo 'documentation: $(CURDIR)/docs/build/index.html'

test: setup
	python -m pytest

lint: setup
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile
	python tests/lint_workflow.py

clean:
	find results -mindepth 1 -maxdepth 1 ! -name reference -exec rm -rf {} +
