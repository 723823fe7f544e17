# `make grade` and `make test` work from a fresh clone: they need Python >= 3.10, make and a C compiler.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

# The tests start hundreds of Python processes. Where bytecode is turned off, each of them would compile our modules again.
export PYTHONDONTWRITEBYTECODE :=

# The torch that .venv gets, as pip writes it: one that development and continuous integration work with, and of which
# they have a build for CPUs. pyproject.toml admits more, which `make test-newest` tries. docs/platforms.md, "Which PyTorch", says
# how a machine without a GPU gets a build without CUDA. Another version: make grade TORCH='torch==2.15.*'
TORCH ?= torch<2.14

install: $(INSTALLED)

grade: $(INSTALLED)
	$(BIN)/kp check --all --tree solutions
	$(BIN)/kp check --all --tree expert

# Everything but what runs weekly, each test once.
test: lint gpu-tests
	$(MAKE) --jobs types tests

# In about five minutes: no grading of the course's exercises, no notebook.
quick: lint
	$(MAKE) --jobs types unit

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo

# One process checks all files. The exams are modules of one name, so each gets a link under a name of its own.
EXAMS := .mypy_cache/exams

types: $(INSTALLED)
	rm -rf $(EXAMS)
	mkdir -p $(EXAMS)
	for exam in checks/*/checkpoint.py; do ln -s "$(CURDIR)/$$exam" "$(EXAMS)/exam_$$(basename "$$(dirname "$$exam")").py"; done
	$(BIN)/mypy src warpcheck/src warpcheck/tests checks tests benchmarks conftest.py $(EXAMS)

# Right submissions, graded with other seeds every day: none may be rejected.
seeds: $(INSTALLED)
	$(BIN)/python benchmarks/seeds.py --seeds 3 --date --kinds references answers accepts

# What needs a GPU has it to itself. Without one there is nothing to collect. The driver says so at once; importing torch
# takes 3 s.
gpu-tests: $(INSTALLED)
	if $(BIN)/python -c 'import ctypes; exit(ctypes.CDLL("libcuda.so.1").cuInit(0))' 2>/dev/null; then $(BIN)/pytest -m gpu; fi

# Tests that share what a compiler made run in one process, groups of them side by side: conftest.py schedules them.
# tests/selection.py says which tests are unit tests, gradings and notebooks. SHARD=1/3 runs a third of them.
# docs/testing.md says how the costs are read from the file of results.
PYTEST := $(BIN)/pytest --numprocesses logical --dist loadscope --no-loadscope-reorder --junitxml .venv/tests.xml
SHARD ?= 1/1

# Afterwards it names the tests that took more than their budget. A busy computer may be to blame: it is no failure.
tests: $(INSTALLED)
	$(PYTEST) -m "not gpu and not weekly"
	-$(BIN)/python -m tests.suite_costs --budget

unit: $(INSTALLED)
	$(PYTEST) -m "unit and not gpu and not weekly"

gradings: $(INSTALLED)
	$(PYTEST) -m "not unit and not gpu and not weekly" --shard $(SHARD)

# The notebooks, planted submissions and whole gradings that every run leaves out, because it has others of their kind. Run
# it after a change of the grader, of the PTX machine, or of many exercises.
weekly: $(INSTALLED)
	$(PYTEST) -m "weekly and not gpu" --shard $(SHARD)

# Those of the weekly tests that concern what differs from a revision, committed or not. pytest ends with 5 if there are
# none.
SINCE ?= origin/main

changed: $(INSTALLED)
	$(PYTEST) -m "weekly and not gpu" --changed $(SINCE) || test $$? -eq 5

# Tests of the PTX machine whose results another processor could change.
PORTABLE := kernels floats integers conversions halves counters faults order triton wgmma

portable: $(INSTALLED)
	$(PYTEST) -m "not gpu" $(PORTABLE:%=warpcheck/tests/machine/test_%.py)

# What this machine says of a solution of each lane: tests/verdicts.py compares two machines.
verdicts: $(INSTALLED)
	$(BIN)/python tests/verdicts.py > .venv/verdicts.json

# Properties that hypothesis tries on 5,000 examples each, others at every run.
examples: $(INSTALLED)
	HYPOTHESIS_PROFILE=long $(PYTEST) -m "hypothesis and not gpu" --timeout 3600

# What the course hooks in other packages, every reference kernel and kernels of the PTX machine, with the lowest or the
# newest versions that were tried, Python's too where PYTHON names no other. Of torch pip takes the build that it is set
# up for: the one for CPUs is 0.2 GB, the one for CUDA brings 2 GB of libraries along.
SMOKE := tests/test_hooks.py tests/test_doctor.py tests/test_exception_findings.py warpcheck/tests/machine/test_kernels.py warpcheck/tests/machine/test_triton.py $(addprefix warpcheck/tests/machine/,test_library.py test_tensor_memory.py)
tried = PYTHONPATH=src:warpcheck/src python3 -c 'from kernelpath import packages; print($(1))'

test-oldest: VERSIONS := lowest
test-newest: VERSIONS := newest
test-oldest test-newest: PYTHON = python$(shell $(call tried,packages.TRIED_VERSIONS["python"].$(VERSIONS)))

test-oldest test-newest: test-%:
	$(PYTHON) -m venv .venv-$*
	$(call tried,packages.constraints("$(VERSIONS)")) > .venv-$*/constraints.txt
	.venv-$*/bin/pip install --quiet --constraint .venv-$*/constraints.txt --editable ./warpcheck --editable '.[all,test]'
	.venv-$*/bin/kp doctor
	.venv-$*/bin/kp check --all --tree solutions --device cpu
	.venv-$*/bin/kp check --all --tree expert --device cpu
	.venv-$*/bin/kp dev spills
	.venv-$*/bin/pytest $(SMOKE)

# A wheel, installed with its dependencies and used as a learner does.
test-wheel:
	$(PYTHON) -m venv .venv-wheel
	echo '$(TORCH)' > .venv-wheel/constraints.txt
	.venv-wheel/bin/pip wheel --quiet --no-deps --wheel-dir .venv-wheel/dist ./warpcheck .
	.venv-wheel/bin/pip install --quiet --constraint .venv-wheel/constraints.txt .venv-wheel/dist/*.whl 'kernelpath[all]'
	rm -rf .venv-wheel/learn
	cd .venv-wheel && bin/kp new learn
	cd .venv-wheel/learn && ../bin/kp check vector_add --device cpu | grep NOT_STARTED
	cp solutions/1_architecture/w01b_vector_add.* .venv-wheel/learn/phases/1_architecture
	cd .venv-wheel/learn && ../bin/kp check vector_add --device cpu

# uv installs in a fifth of pip's time, from where pip would: it doesn't read pip's settings, so it is given them. The option
# `unsafe-best-match` means what pip does with several indexes. Files that do not compile are for other versions of Python.
# A fifth of the code is left out, which no process of ours imports.
pip_setting = $$($(BIN)/pip config get :env:.$(1) 2>/dev/null || $(BIN)/pip config get global.$(1) 2>/dev/null)

$(INSTALLED): pyproject.toml warpcheck/pyproject.toml
	$(PYTHON) -m venv .venv
	echo '$(TORCH)' > .venv/constraints.txt
	$(BIN)/pip install --quiet uv
	cert="$(call pip_setting,cert)" && SSL_CERT_FILE="$${cert:-$$SSL_CERT_FILE}" \
	UV_DEFAULT_INDEX="$(call pip_setting,index-url)" UV_INDEX="$(call pip_setting,extra-index-url)" \
	UV_FIND_LINKS="$(call pip_setting,find-links)" UV_INDEX_STRATEGY=unsafe-best-match \
	$(BIN)/uv pip install --quiet --python .venv --constraint .venv/constraints.txt --editable ./warpcheck --editable '.[all,test]'
	@$(BIN)/python -m compileall -qq -j 0 -x '/(tests?|pip|mypyc|fontTools)/' .venv/lib || true
	touch $@

.PHONY: install grade test quick lint types seeds gpu-tests tests unit gradings weekly changed portable verdicts examples test-oldest test-newest test-wheel
