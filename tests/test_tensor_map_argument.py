"""Tensor maps and descriptors as lanes pass them: what the host says becomes what the driver would write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelpath.device import messages
from kernelpath.device.case import zero_padding
from warpcheck import ptx
from warpcheck.frontends import cuda, triton_descriptors
from warpcheck.tensor_map import TensorMap


def test_a_box_and_a_tensor_are_named_in_the_order_of_its_axes() -> None:
    tensor = torch.zeros(6, 40, 64, dtype=torch.bfloat16)[:, ::2]
    said = TensorMap.decode(cuda.tensor_map(tensor, (2, 4, 32), swizzle=64, nan_fill=True).content)
    assert (said.type.name, said.address) == ("bf16", tensor.data_ptr())
    assert (said.extents, said.strides, said.box) == ((64, 20, 6), (256, 5120), (32, 4, 2))
    assert (said.swizzle, said.nan_fill, said.steps) == (2, True, (1, 1, 1))


def test_the_corners_of_im2col_mode_are_named_in_the_order_of_the_axes() -> None:
    tensor = torch.zeros(2, 9, 14, 64, dtype=torch.float16)
    content = cuda.im2col_map(
        tensor, pixels=128, channels=32, lower=(-1, -2), upper=(-3, -4), steps=(1, 2, 3, 1)
    ).content
    said = TensorMap.decode(content)
    assert (said.extents, said.strides, said.box) == ((64, 14, 9, 2), (128, 1792, 16128), (32, 128))
    assert (said.corners, said.steps) == (((-2, -1), (-4, -3)), (1, 3, 2, 1))
    with pytest.raises(ValueError, match="steps has a number for each of the 4 axes"):
        cuda.im2col_map(tensor, pixels=128, channels=32, lower=(0, 0), upper=(0, 0), steps=(2, 2))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"box": (32, 64), "swizzle": 64}, ValueError, "boxDim.*64"),
        ({"box": (32, 3)}, ValueError, "multiple of 16 bytes"),
        ({"box": (32,)}, ValueError, "a number for each of the 2 axes"),
        ({"box": (32, 8), "swizzle": 5}, ValueError, "swizzle=5 is none of 0, 32, 64, 128"),
        ({"box": (32, 8), "tensor": torch.zeros(64, 64).half().T}, ValueError, "must be contiguous"),
        ({"box": (32, 8), "tensor": torch.zeros(8, 8, dtype=torch.complex64)}, TypeError, "elements of complex64"),
    ],
)
def test_what_the_driver_makes_no_map_of(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        cuda.tensor_map(**{"tensor": torch.zeros(64, 64).half(), **given})


def descriptor(tensor: torch.Tensor, **more: Any) -> Any:
    return SimpleNamespace(base=tensor, shape=tensor.shape, strides=tensor.stride(), padding="zero", **more)


def test_a_descriptor_of_triton_is_a_map_with_its_shape_and_strides() -> None:
    tensor = torch.zeros(48, 64, dtype=torch.float64)
    layout = {"swizzle": 3, "elem_size": 8, "elem_type": 9, "block_size": [16, 16], "fp4_padded": False}
    content, *rest = triton_descriptors.passed(descriptor(tensor), layout)
    assert rest == [48, 64, 64, 1]
    said = TensorMap.decode(content)
    assert said.type.name == "f64"  # 9 for the hardware, 8 for the driver
    assert (said.extents, said.strides, said.box, said.swizzle) == ((64, 48), (512,), (16, 16), 3)


def test_a_descriptor_before_hopper_is_taken_apart() -> None:
    tensor = torch.zeros(4, 8)
    of_triton_3_6, of_triton_3_9 = descriptor(tensor), descriptor(tensor, round_f32_to_tf32=False)
    assert triton_descriptors.passed(of_triton_3_6, None)[1:] == [4, 8, 8, 1, False, 4, 8, 8, 1]
    assert triton_descriptors.passed(of_triton_3_9, None)[1:] == [4, 8, 8, 1, False, False, 4, 8, 8, 1]


PREFETCHED = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128])
{
    .reg .b64 %rd<2>;
    mov.b64 %rd1, map;
    prefetch.tensormap [%rd1];
    ret;
}
"""


def test_what_a_host_leaves_at_the_end_of_a_map_says_nothing() -> None:
    """CuTe's host code writes maps itself: it sets bit 1 of the ninth byte, and leaves what follows the box."""
    driver = cuda.tensor_map(torch.zeros(64, 64).half(), (32, 32)).content
    content = driver[:8] + bytes([driver[8] | 2]) + driver[9:]
    module: Any = SimpleNamespace(parsed=ptx.parse(PREFETCHED))
    asked: list[Any] = [
        SimpleNamespace(kernel="k", arguments=[messages.Blob(told, [])])
        for told in (content, content[:60] + bytes(range(68)), content[:32] + b"\7" + content[33:])
    ]
    left, other, wider = (zero_padding(module, one) for one in asked)
    assert left == other != wider
