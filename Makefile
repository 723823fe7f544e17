# `make grade` and `make test` work from a fresh clone: they need Python >= 3.10, make and a C compiler.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

grade: $(INSTALLED)
	$(BIN)/kp check --all --tree solutions

test: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@

.PHONY: grade test
