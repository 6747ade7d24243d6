# Two commands matter: `make up` (a cluster with a running pod) and `make test` (all that CI runs).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help up down test check unit component sim cluster bench proto proto-files fmt env

help: ## Show what there is to run
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

env: $(STAMP) ## Make the environment in .venv

$(STAMP): pyproject.toml hatch_build.py proto/build.py $(wildcard proto/*.py) podyard/api/tables/served.tsv
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $(STAMP)

proto: ## Make podyard/api/gen from the .proto files
	$(BIN)/python proto/build.py

proto-files: ## Rewrite the .proto files from the tables
	$(BIN)/python proto/generate.py

fmt: env ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: env ## Linters, types, dependency rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: env ## Unit tests
	$(BIN)/pytest tests/unit -n 2 -q

test: env ## All that CI runs
	.ci/stages
