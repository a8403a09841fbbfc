# make demo: a first run. make test: what a change must pass. CONTRIBUTING.md explains the others.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test lint style types bench promises test-kill test-big clean

demo: .venv/installed
	$(BIN)/seqloom demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: style types

style: .venv/installed-test
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench

types: .venv/installed-test
	$(BIN)/mypy

promises: .venv/installed-test
	cd tests && ../$(BIN)/python -m support.promises

test-kill: .venv/installed-test
	$(BIN)/python -m pytest -m kill

test-big: .venv/installed-test
	$(BIN)/python -m pytest -m big

bench: .venv/installed-test
	$(BIN)/python bench/train.py
	$(BIN)/python bench/recurrent.py
	$(BIN)/python bench/attention.py
	$(BIN)/python bench/output.py
	$(BIN)/python bench/tokens.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	@touch $@

.venv/installed-test: .venv/installed
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[test]'
	@touch $@

clean:
	rm -rf .venv build dist runs
