# Two commands matter: `make up` (a cluster with a running pod) and `make test` (all that CI runs).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PODYARD := $(BIN)/podyard

.DEFAULT_GOAL := help
.PHONY: help env up down test test-slow soak check unit simulation image component cluster bench proto proto-files fmt

help: ## Show what there is to run
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{sub(/:.*/, "", $$1); printf "  make %-12s %s\n", $$1, $$2}'

env: $(STAMP) ## Make the environment in .venv

$(STAMP): pyproject.toml hatch_build.py $(wildcard proto/*.py) podyard/api/tables/served.tsv
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what Podyard needs into $(VENV); the first time it takes about a minute"
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $(STAMP)

up: env ## Bring a cluster up with a pod and a Service that run, and say what to type next
	$(PODYARD) up --build
	@$(BIN)/python -m podyard.cli.sample $(PODYARD)

down: env ## Remove the cluster
	$(PODYARD) down

test: env ## All that CI runs
	.ci/stages

test-slow: env ## What takes long: the scenario three times, then once with the real 50 s and 300 s
	.ci/stages slow

soak: env ## An hour of churn, after which nothing may have grown or be left
	.ci/stages image soak

check unit simulation image component cluster: env
	.ci/stages $@

bench: env ## Measure: memory, idle CPU, start times, requests
	$(BIN)/python tests/bench/run.py

proto: env ## Make podyard/api/gen from the .proto files
	$(BIN)/python proto/build.py

proto-files: env ## Rewrite the .proto files from the tables
	$(BIN)/python proto/generate.py
	$(BIN)/python proto/build.py

fmt: env ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
