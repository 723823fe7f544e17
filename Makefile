# `make grade` and `make test` work from a fresh clone: they need Python >= 3.10, make and a C compiler.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

grade: $(INSTALLED)
	$(BIN)/kp check --all --tree solutions

# A file of tests, or submissions to one exercise, run in one process, groups beside each other; what needs a GPU has it to itself.
test: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	for exam in checks/*/checkpoint.py; do $(BIN)/mypy $$exam || exit 1; done
	$(BIN)/pytest -m gpu
	$(BIN)/pytest -m "not gpu" --numprocesses logical --dist loadgroup

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@

.PHONY: grade test
