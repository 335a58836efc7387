# Two commands on a fresh machine: `make demo` and `make test`. Each sets up .venv by itself.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench docs clean

demo: .venv/.ready
	$(BIN)/shoal demo

test: .venv/.ready-dev
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

lint: .venv/.ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/.ready-bench
	$(BIN)/python -m bench

docs: .venv/.ready-dev
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean:
	rm -rf .venv docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis dist

.venv/.ready: pyproject.toml packages/shoal-device/pyproject.toml hatch_build.py src/shoal/support/kernels.c
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Shoal needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e packages/shoal-device -e '.[server]'
	touch $@

.venv/.ready-dev: .venv/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e packages/shoal-device -e '.[dev]'
	touch $@

.venv/.ready-bench: .venv/.ready-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e packages/shoal-device -e '.[bench]'
	touch $@
