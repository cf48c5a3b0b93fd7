# Everything a day with this project needs. `make` alone lists it; `make train ARGS="seed=1"` hands settings on.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
TORCH ?= 2.11 2.13 newest
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install train bench doctor test test-coverage test-docs test-cuda test-slow test-gpu test-versions mutants fuzz nightly keys links pictures check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Make .venv and install the project in it (PYTHON=python3.12 chooses another Python)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Torch first and alone, so that a machine which offers its own build of the pinned version gets that one.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $@

train: install ## Train PPO in the Arena (ARGS="seed=1 algorithm.learning_rate.initial=1e-4")
	$(BIN)/torchrl-agent train arena $(ARGS)

bench: install ## Measure frames per second
	$(BIN)/torchrl-agent bench $(ARGS)

doctor: install ## Say what this machine has and lacks
	$(BIN)/torchrl-agent doctor $(ARGS)

test: install ## Run the fast tests, one process per core
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

test-coverage: install ## Run the fast tests and print the fraction of lines and branches that they reach
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --cov --cov-report=term $(ARGS)

test-docs: install ## Run what guides and notebooks show, in small sizes, build the site, and start an installed wheel
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "slow and not gpu" tests/test_docs.py tests/test_notebooks.py tests/test_install.py $(ARGS)

test-cuda: install ## Show without a GPU what one would do: a device that pretends, kernels that are real
	$(BIN)/python -m pytest -n $(JOBS) -m "not gpu" tests/test_cuda.py tests/benchmarks/test_lowering.py $(ARGS)

test-slow: install ## Run the tests that compile or train
	$(BIN)/python -m pytest -m "slow and not gpu" $(ARGS)

test-gpu: install ## Run the tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu $(ARGS)

# what constraints.txt ties to its own torch moves with another one, within the bounds of pyproject.toml
TIED := torch|triton|torchrl|tensordict|torchao

$(VENV)-torch-%/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(@D)
	grep -vE '^($(TIED))==' constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/python -m pip install --quiet $(if $(filter newest,$*),torch,'torch==$*.*')
	$(@D)/bin/python -m pip install --quiet -c $(@D)/constraints.txt -e ".[dev]"
	@touch $@

test-torch-%: $(VENV)-torch-%/.installed
	$(<D)/bin/python -c 'import torch; print("torch", torch.__version__)'
	$(<D)/bin/python -m pytest -m "not gpu and not fuzz" $(ARGS)

.PRECIOUS: $(VENV)-torch-%/.installed

test-versions: $(TORCH:%=test-torch-%) ## Run fast and slow tests with other versions of torch (TORCH="2.11 newest")

mutants: install ## Plant deliberate bugs and see whether the tests find them (ARGS="ppo --jobs 2")
	$(BIN)/python tests/mutation/run.py $(ARGS)

fuzz: install ## Try hostile configurations, worlds, files and kills for long, each time others
	$(BIN)/python -m pytest -m "not gpu" --hypothesis-profile=thorough tests/fuzz $(ARGS)

nightly: ## Run what takes hours: tests with every version of torch, deliberate bugs, fuzzers
	$(MAKE) --keep-going test-versions mutants fuzz

keys: install ## Write the tables of keys in the guides, from the dataclasses
	$(BIN)/python docs/tools/keys.py

links: install ## Write the links to the repository, from repo_url in mkdocs.yml
	$(BIN)/python docs/tools/links.py

pictures: install ## Draw the pictures of the guides
	$(BIN)/python docs/tools/pictures.py

check: install ## Format, lint, import direction and types (with CI=true it only looks)
	$(BIN)/ruff format $(if $(filter true,$(CI)),--check)
	$(BIN)/ruff check --no-cache
	$(BIN)/lint-imports
	$(BIN)/mypy

clean: ## Remove caches, build artifacts and environments of other versions; runs/ and .venv stay
	rm -rf build dist *.egg-info $(VENV)-torch-* .pytest_cache .ruff_cache .mypy_cache .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
