# Everything starts here: `make demo` and `make test` do all their set-up themselves.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
LOCKS := images/cpu.lock images/cpu-torch.lock
PROTOS := strongroom/protocol/v1/strongroom.proto strongroom/protocol/control/control.proto
PYTHON ?= $(shell command -v python3.11 || command -v python3)

.PHONY: help setup demo serve test lint types contract generate check-generated check-docs lock clean

help: ## List what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(INSTALLED) ## Fill .venv with the locked dependencies and this project

$(INSTALLED): $(LOCKS) pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
	  echo "Strongroom's lock file is for Python 3.11; install it or run: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(PY) || "$(PYTHON)" -m venv $(VENV)
	echo "Installing the locked dependencies into $(VENV) (3 GB on disk; a few minutes the first time) ..." >&2
	$(PY) -m pip install --disable-pip-version-check --no-deps --require-hashes --progress-bar off \
	    $(foreach lock,$(LOCKS),-r $(lock)) | \
	    awk '/^Collecting/ { if (++n % 20 == 0) { print "  " n " packages fetched"; fflush() } }
	         /^(Installing|Successfully)/ { print "  " substr($$0, 1, 60) " ..."; fflush() }' || {
	  echo "The installation failed. If pip found no torch 2.13.0+cpu: point it at PyTorch's index of CPU builds" >&2
	  echo "with PIP_EXTRA_INDEX_URL (README, section 'Set-up'), then run make again." >&2; exit 1; }
	$(PY) -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	touch $@

demo: $(INSTALLED) ## Run the main job: attest, seal, chat, and measure the salted prefix cache
	@$(PY) -m tests.demo

serve: $(INSTALLED) ## Keep a demo server and proxy running, and print what to paste into another terminal
	@$(PY) -m tests.demo --keep

test: $(INSTALLED) ## Run every test
	@$(PY) -m pytest tests/unit tests/conformance tests/system

lint: $(INSTALLED) ## Check style
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(INSTALLED) ## Check types
	$(VENV)/bin/mypy

contract: $(INSTALLED) ## Check who imports whom
	$(VENV)/bin/lint-imports --no-cache

generate: $(INSTALLED) ## Generate the code of the .proto files
	cd protocol && ../$(PY) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. \
	    --plugin=protoc-gen-mypy_grpc=../$(VENV)/bin/protoc-gen-mypy_grpc --mypy_grpc_out=quiet:. $(PROTOS)

check-generated: generate ## Refuse generated code that is not what the .proto files give
	@git diff --exit-code --stat -- 'protocol/**/*_pb2*' || { echo "stale generated code: run make generate and commit" >&2; exit 1; }

check-docs: $(INSTALLED) ## Refuse tables in docs/ that are not what the code gives
	$(PY) -m tests.docs.generate_configuration --check

lock: ## Resolve the lock file of the CPU build anew (needs uv)
	uv pip compile --quiet pyproject.toml images/cpu.in --extra launcher --extra worker --extra dev \
	    --python-version 3.11 --python-platform x86_64-manylinux_2_28 --generate-hashes --no-header --no-annotate \
	    --excludes images/cpu.exclude --overrides images/cpu.override --no-emit-package torch --output-file images/cpu.lock

clean: ## Remove .venv and the cached models
	rm -rf $(VENV) .cache
