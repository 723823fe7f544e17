# `make grade` and `make test` work from a fresh clone: they need Python >= 3.10, make and a C compiler.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

grade: $(INSTALLED)
	$(BIN)/kp check --all --tree solutions

test: lint gpu-tests
	$(MAKE) --jobs types tests

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(INSTALLED)
	$(BIN)/mypy
	for exam in checks/*/checkpoint.py; do $(BIN)/mypy $$exam || exit 1; done

# What needs a GPU has it to itself. Without one there is nothing to collect.
gpu-tests: $(INSTALLED)
	if $(BIN)/python -c 'import torch; exit(not torch.cuda.is_available())'; then $(BIN)/pytest -m gpu; fi

# A file of tests, or submissions to one exercise, run in one process, groups beside each other.
tests: $(INSTALLED)
	$(BIN)/pytest -m "not gpu" --numprocesses logical --dist loadgroup

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@

.PHONY: grade test lint types gpu-tests tests
