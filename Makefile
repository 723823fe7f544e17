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

# An exercise of each lane and kernels of the PTX machine, with the lowest or the newest versions that were tried.
SMOKE := tests/test_doctor.py tests/simt/test_kernels.py tests/simt/test_triton.py

test-oldest: VERSIONS := lowest
test-newest: VERSIONS := newest

test-oldest test-newest: test-%:
	$(PYTHON) -m venv .venv-$*
	PYTHONPATH=src $(PYTHON) -c 'from kernelpath import packages; print(packages.constraints("$(VERSIONS)"))' \
		> .venv-$*/constraints.txt
	.venv-$*/bin/pip install --quiet --constraint .venv-$*/constraints.txt --editable '.[test]'
	for name in vector_add bias_relu vector_copy; do \
		.venv-$*/bin/kp check $$name --tree solutions --device cpu || exit 1; done
	.venv-$*/bin/pytest $(SMOKE)

# Tests of the PTX machine and a check of each lane on an emulated aarch64, equal to those here. As root, on x86-64.
test-aarch64: $(INSTALLED)
	$(BIN)/pip install --quiet uv
	$(BIN)/python tests/aarch64.py

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@

.PHONY: grade test lint types gpu-tests tests test-oldest test-newest test-aarch64
