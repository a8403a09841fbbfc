# Two commands do everything: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test lint bench promises test-kill test-big clean

demo: .venv/installed
	$(BIN)/seqloom demo

test: .venv/installed-test lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: .venv/installed-test
	$(BIN)/ruff check src tests bench

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
