"""Test that the private names that warpcheck hooks in Triton, the CuTe DSL, and other packages still exist.

A hook that a new version of a package has removed fails here, with a sentence that says what no longer works.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cutlass import cute as dsl

from kernelpath import cli, packages
from kernelpath.show import cells, notebook
from kernelpath.verdict import Verdict
from kernelpath.work.exception_findings import classify_exception
from warpcheck import hooks
from warpcheck.frontends import cute as lane
from warpcheck.frontends.cute_places import remember_places
from warpcheck.hooks import Attribute, Changed, Hook, cute, inductor, jax, triton, tvm_ffi

PACKAGE = Path(hooks.__file__).parents[1]
PLACES = {
    f"{module.__name__.rpartition('.')[2]}.{name}": hook
    for module in (triton, cute, inductor, jax, tvm_ffi)
    for name, hook in hooks.declared_hooks(module).items()
}


@pytest.mark.parametrize("name", [name for name, hook in PLACES.items() if not isinstance(hook, Attribute)])
def test_a_hook_still_exists(name: str) -> None:
    if PLACES[name].module.startswith("jax."):  # which needs Python 3.11
        pytest.importorskip("jax")
    if name.startswith("tvm_ffi."):
        pytest.importorskip("tvm_ffi")
    PLACES[name].get()


INSTANCES = """
from warpcheck.hooks import Attribute, declared_hooks, triton as hooks
from warpcheck.frontends import triton as lane
lane.activate("cpu")
import torch, triton, triton.language as tl

@triton.jit
def probe(out):
    tl.store(out + tl.arange(0, 32), 1)

tuner = triton.autotune([triton.Config({})], key=[])(probe)
kernel = probe[(1,)](torch.zeros(32))
made = {"JITFunction": probe, "Autotuner": tuner, "CompiledKernel": kernel, "KernelMetadata": kernel.metadata}
for hook in declared_hooks(hooks).values():
    if isinstance(hook, Attribute):
        hook.of(made[hook.name.partition(".")[0]])
        print(hook.name)
"""


def test_hooked_attributes_of_triton_exist_after_a_launch(tmp_path: Path) -> None:
    """The test needs its own process, because activating the lane replaces Triton's driver permanently."""
    (tmp_path / "probe.py").write_text(INSTANCES)
    process = subprocess.run([sys.executable, tmp_path / "probe.py"], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-2000:]
    assert sorted(process.stdout.split()) == sorted(hook.name for hook in attributes(triton))


ALIGNMENTS = """
from warpcheck.hooks import triton as hooks
from warpcheck.frontends import triton as lane

calls = []
for hook in (hooks.COMPILE, hooks.ASSEMBLE):
    def counted(*arguments, name=hook.name, original=hook.get()):
        calls.append(name)
        return original(*arguments)
    hook.replace(counted)
lane.activate("cpu")
import torch, triton, triton.language as tl

@triton.jit
def put(out):
    tl.store(out, 1)

memory = torch.zeros(8)
for out in (memory, memory[1:], memory.int()):
    put[(1,)](out)
print([calls.count(hook.name) for hook in (hooks.COMPILE, hooks.ASSEMBLE)], memory[:2].tolist())
"""


def test_alignments_that_give_the_same_ptx_are_assembled_once(tmp_path: Path) -> None:
    (tmp_path / "alignments.py").write_text(ALIGNMENTS)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    process = subprocess.run(
        [sys.executable, tmp_path / "alignments.py"], capture_output=True, text=True, env=environment
    )
    assert process.returncode == 0, process.stderr[-2000:]
    assert process.stdout == "[3, 2] [1.0, 1.0]\n"


def test_hooked_attributes_of_the_dsl_exist_after_a_compilation() -> None:
    compiler = cute.DSL.get()()
    instances = {
        "CuTeDSL": compiler,
        "Compiler": cute.COMPILER.of(compiler),
        "JitCompiledFunction": lane._compile(nothing, (), "sm_80"),
    }
    for hook in attributes(cute):
        hook.of(instances[hook.name.partition(".")[0]])


@dsl.jit
def nothing() -> None:
    """Do nothing: a host function that launches no kernel."""


def test_only_a_necessary_hook_makes_the_dsl_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    moved_hook = Hook("cutlass._mlir.ir", "Module.moved", "it is slower")
    for name in ("PARSE", "FRAMEWORK"):
        monkeypatch.setattr(cute, name, moved_hook)
    remember_places()
    assert cute.MODULE.of(lane._compile(nothing, (), "sm_80")) is not None
    monkeypatch.delattr(cute.ARCH.owner(), "Arch")
    with pytest.raises(Changed) as changed:
        lane._compile(nothing, (), "sm_80")
    finding = classify_exception(changed.value, Path(__file__))
    assert (finding.verdict, finding.cause) == (Verdict.UNAVAILABLE, str(changed.value))
    assert finding.cause.endswith("cutlass.base_dsl.enums.Arch: a kernel cannot be compiled for a GPU that is not here")


def attributes(module: ModuleType) -> list[Attribute]:
    return [hook for hook in hooks.declared_hooks(module).values() if isinstance(hook, Attribute)]


def without_warmup(self: Any, *args: Any, grid: Any, **kwargs: Any) -> None:
    """Stand in for a later version of JITFunction.run, without the parameter warmup."""


def test_a_missing_hook_says_what_no_longer_works(monkeypatch: pytest.MonkeyPatch) -> None:
    version = packages.version("triton")
    compile_one = triton.COMPILE.owner()
    monkeypatch.delattr(compile_one, "_do_compile")
    assert describe_change(triton.COMPILE) == (
        f"Triton {version} no longer has triton.runtime.jit.JITFunction._do_compile: "
        "compiling cannot be told from running"
    )
    monkeypatch.setattr(compile_one, "run", without_warmup)
    assert describe_change(triton.LAUNCH) == (
        f"Triton {version} has a triton.runtime.jit.JITFunction.run that no longer takes warmup: "
        "a recorded GPU cannot answer launches"
    )
    moved = Hook("triton.runtime.moved", "JITFunction.run", "nothing works")
    assert (
        describe_change(moved) == f"Triton {version} no longer has triton.runtime.moved.JITFunction.run: nothing works"
    )
    with pytest.raises(
        Changed, match=r"has triton\.compiler\.compiler\.CompiledKernel\.n_regs: a kernel's registers cannot be noted"
    ):
        triton.REGISTERS.of(object())


def describe_change(hook: Hook) -> str:
    with pytest.raises(Changed) as changed:
        hook.get()
    return str(changed.value)


def test_a_missing_package_is_not_a_missing_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ModuleNotFoundError):
        Hook("triton", "jit", "").get()


def test_triton_may_probe_the_driver_for_new_attributes() -> None:
    from warpcheck.frontends.triton import _Driver

    driver = _Driver()
    assert not hasattr(driver, "launch_batch")
    with pytest.raises(Changed, match=r"asks its driver for launch_batch: kernels cannot be sent to the PTX machine"):
        driver.launch_batch  # noqa: B018


# A package that shadows Triton: it imports the real Triton and removes a hook.
BROKEN = """
import sys
sys.path.remove({folder!r})
del sys.modules["triton"]
import triton
from triton.runtime.jit import JITFunction
del JITFunction._do_compile
"""

RUN = "import sys; sys.path.insert(0, {folder!r}); from kernelpath import cli; cli.main({arguments!r})"


@pytest.mark.weekly
def test_doctor_and_check_report_a_missing_hook(tmp_path: Path) -> None:
    fake = tmp_path / "triton" / "__init__.py"
    fake.parent.mkdir()
    fake.write_text(BROKEN.format(folder=str(tmp_path)))
    sentence = "no longer has triton.runtime.jit.JITFunction._do_compile: compiling cannot be told from running"

    def run(*arguments: str) -> str:
        code = RUN.format(folder=str(tmp_path), arguments=list(arguments))
        process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parents[1])
        assert "Traceback" not in process.stdout + process.stderr
        return " ".join(process.stdout.split())

    output = run("doctor")
    assert (
        f"no Triton without a GPU Triton {packages.version('triton')} {sentence} do: {packages.install_tried()}"
        in output
    )
    assert "yes CUDA C++ without a GPU compiled and ran" in output
    output = run("check", "bias_relu", "--tree", "solutions", "--device", "cpu")
    assert sentence in output
    assert "next: kp doctor" in output


def test_notebooks_and_commands_report_a_missing_hook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("warnings.formatwarning", warnings.formatwarning)  # which the lane replaces
    monkeypatch.delattr(triton.COMPILE.owner(), "_do_compile")
    with pytest.raises(Changed) as changed:
        triton.COMPILE.get()
    with pytest.raises(cells.Stop) as stopped:
        notebook.setup(triton=True)
    assert str(stopped.value) == f"{changed.value}. Do: {packages.install_tried()}"
    monkeypatch.setattr("kernelpath.doctor.examine", triton.COMPILE.get)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["doctor"])
    assert exit_.value.code == 2
    assert " ".join(capsys.readouterr().err.split()).endswith(f"{changed.value}; kp doctor says what to install")


@pytest.mark.parametrize(
    ("package", "private"),
    [
        ("triton", "runtime compiler backends knobs _C"),
        ("cutlass", "base_dsl _mlir cutlass_dsl _mlir_helpers"),
        ("torch", "_inductor"),
    ],
)
def test_only_hooks_import_private_modules(package: str, private: str) -> None:
    """Only hooks/ may import private modules of these packages."""
    private_modules = {f"{package}.{name}" for name in private.split()}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            private_imports = [name for name in names if ".".join(name.split(".")[:2]) in private_modules]
            assert not private_imports, (
                f"{path.relative_to(PACKAGE)} imports {private_imports[0]}: declare it in hooks/"
            )
