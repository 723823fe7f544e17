# `make grade` and `make test` work from a fresh clone: they need Python >= 3.10, make and a C compiler.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

# The torch that .venv gets, as pip writes it: one that development and continuous integration work with, and of which
# they have a build for CPUs. pyproject.toml admits more, which `make test-newest` tries. README.md, "Which PyTorch", says
# how a machine without a GPU gets a build without CUDA. Another version: make grade TORCH='torch==2.15.*'
TORCH ?= torch<2.14

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

# Right submissions, graded with other seeds every day: none may be rejected.
seeds: $(INSTALLED)
	$(BIN)/python benchmarks/seeds.py --seeds 3 --date --kinds references accepts

# What needs a GPU has it to itself. Without one there is nothing to collect.
gpu-tests: $(INSTALLED)
	if $(BIN)/python -c 'import torch; exit(not torch.cuda.is_available())'; then $(BIN)/pytest -m gpu; fi

# A file of tests, or submissions to one exercise, run in one process, groups beside each other.
tests: $(INSTALLED)
	$(BIN)/pytest -m "not gpu" --numprocesses logical --dist loadgroup

# What the course hooks in other packages, every reference kernel and kernels of the PTX machine, with the lowest or the
# newest versions that were tried, Python's too where PYTHON names no other. Of torch pip takes the build that it is set
# up for: the one for CPUs is 0.2 GB, the one for CUDA brings 2 GB of libraries along.
SMOKE := tests/test_hooks.py tests/test_doctor.py tests/test_blame.py tests/simt/test_kernels.py tests/simt/test_triton.py
tried = PYTHONPATH=src python3 -c 'from kernelpath import packages; print($(1))'

test-oldest: VERSIONS := lowest
test-newest: VERSIONS := newest
test-oldest test-newest: PYTHON = python$(shell $(call tried,packages.TRIED["python"].$(VERSIONS)))

test-oldest test-newest: test-%:
	$(PYTHON) -m venv .venv-$*
	$(call tried,packages.constraints("$(VERSIONS)")) > .venv-$*/constraints.txt
	.venv-$*/bin/pip install --quiet --constraint .venv-$*/constraints.txt --editable '.[test]'
	.venv-$*/bin/kp doctor
	.venv-$*/bin/kp check --all --tree solutions --device cpu
	.venv-$*/bin/kp dev spills
	.venv-$*/bin/pytest $(SMOKE)

# Tests of the PTX machine and a check of each lane on an emulated aarch64, equal to those here. As root, on x86-64.
test-aarch64: $(INSTALLED)
	$(BIN)/pip install --quiet uv
	$(BIN)/python tests/aarch64.py

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	echo '$(TORCH)' > .venv/constraints.txt
	$(BIN)/pip install --quiet --constraint .venv/constraints.txt --editable '.[test]'
	touch $@

.PHONY: grade test lint types seeds gpu-tests tests test-oldest test-newest test-aarch64
