"""Test that week 16's package launches on the device of its tensors, even if another device is current."""

from pathlib import Path

from kernelpath.course import registry
from tests import fresh_process

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from fused_kernels import kernels, operators

guarded = []

class DeviceOf:
    # Stands for torch.cuda.device_of, whose effect only a second GPU would show.
    def __init__(self, tensor):
        self.tensor = tensor
    def __enter__(self):
        guarded.append(self.tensor.data_ptr())
    def __exit__(self, *_):
        guarded.pop()

class Kernel:
    def __init__(self, name):
        self.name = name
    def __getitem__(self, grid):
        return self.launch
    def launch(self, *arguments, **_):
        addresses = [x.data_ptr() for x in arguments if isinstance(x, torch.Tensor)]
        print(self.name, bool(guarded) and guarded[-1] in addresses)

torch.cuda.device_of = DeviceOf
operators.multiprocessors = lambda device: 4
for name in ("add_rmsnorm_forward", "add_rmsnorm_backward", "sum_stripes", "swiglu_forward", "swiglu_backward"):
    setattr(kernels, name, Kernel(name))
x, weight, rstd = torch.ones(4, 8), torch.ones(8), torch.ones(4)
torch.ops.fused_kernels.add_rmsnorm(x, x.clone(), weight, 1e-6)
kernels.sum_stripes.launch = lambda *_, **__: print("sum_stripes", bool(guarded))
torch.ops.fused_kernels.add_rmsnorm_backward(x, x, x.clone(), weight, rstd)
torch.ops.fused_kernels.swiglu(x)
torch.ops.fused_kernels.swiglu_backward(x, torch.ones(4, 4))
"""


def test_each_launch_is_on_the_device_of_its_tensors(tmp_path: Path) -> None:
    source = registry.find("kernel_library").solution.with_suffix("") / "src"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    stdout, stderr = fresh_process.run(program, str(source))
    assert not stderr
    launches = dict(line.split() for line in stdout.splitlines())
    assert launches == dict.fromkeys(
        ("add_rmsnorm_forward", "add_rmsnorm_backward", "sum_stripes", "swiglu_forward", "swiglu_backward"), "True"
    )
