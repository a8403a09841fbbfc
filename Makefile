# make demo: a first run. make test: what a change must pass. CONTRIBUTING.md explains the others.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test lint style types bench promises docs test-docs test-kill test-big attack clean

demo: .venv/installed
	$(BIN)/seqloom demo

test: lint
	OMP_NUM_THREADS=1 GOMP_SPINCOUNT=1000 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: style types

style: .venv/installed-test
	$(BIN)/ruff check src tests bench docs/conf.py docs/_ext
	$(BIN)/ruff format --check src tests bench docs/conf.py docs/_ext

types: .venv/installed-test
	$(BIN)/mypy

promises: .venv/installed-test
	cd tests && ../$(BIN)/python -m support.promises

docs: .venv/installed-docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo build/docs/index.html

test-docs: .venv/installed-test .venv/installed-docs
	OMP_NUM_THREADS=1 GOMP_SPINCOUNT=1000 $(BIN)/python -m pytest -m docs -n 2 --durations 5

attack: .venv/installed-test
	cd tests && ../$(BIN)/python -m attack --amount 2

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

.venv/installed-docs: .venv/installed
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	@touch $@

clean:
	rm -rf .venv build dist runs
