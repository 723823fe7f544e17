"""Test that tensor maps and descriptors from the lanes have the bytes that the CUDA driver would write."""

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


def test_a_tensor_map_reverses_the_order_of_the_axes() -> None:
    tensor = torch.zeros(6, 40, 64, dtype=torch.bfloat16)[:, ::2]
    decoded = TensorMap.decode(cuda.tensor_map(tensor, (2, 4, 32), swizzle=64, nan_fill=True).content)
    assert (decoded.type.name, decoded.address) == ("bf16", tensor.data_ptr())
    assert (decoded.extents, decoded.strides, decoded.box) == ((64, 20, 6), (256, 5120), (32, 4, 2))
    assert (decoded.swizzle, decoded.nan_fill, decoded.steps) == (2, True, (1, 1, 1))


def test_an_im2col_map_reverses_the_order_of_the_axes() -> None:
    tensor = torch.zeros(2, 9, 14, 64, dtype=torch.float16)
    content = cuda.im2col_map(
        tensor, pixels=128, channels=32, lower=(-1, -2), upper=(-3, -4), steps=(1, 2, 3, 1)
    ).content
    decoded = TensorMap.decode(content)
    assert (decoded.extents, decoded.strides, decoded.box) == ((64, 14, 9, 2), (128, 1792, 16128), (32, 128))
    assert (decoded.corners, decoded.steps) == (((-2, -1), (-4, -3)), (1, 3, 2, 1))
    with pytest.raises(ValueError, match="steps has a number for each of the 4 axes"):
        cuda.im2col_map(tensor, pixels=128, channels=32, lower=(0, 0), upper=(0, 0), steps=(2, 2))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"box": (32, 64), "swizzle": 64}, ValueError, "boxDim.*64"),
        ({"box": (32, 3)}, ValueError, "multiple of 16 bytes"),
        ({"box": (32,)}, ValueError, "a number for each of the 2 axes"),
        ({"box": (32, 8), "swizzle": 5}, ValueError, "swizzle=5 is none of 0, 32, 64, 128"),
        ({"box": (32, 8), "tensor": torch.zeros(64, 64).half().T}, ValueError, "must be contiguous"),
        ({"box": (32, 8), "tensor": torch.zeros(8, 8, dtype=torch.complex64)}, TypeError, "elements of complex64"),
    ],
)
def test_arguments_that_the_driver_rejects_raise(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        cuda.tensor_map(**{"tensor": torch.zeros(64, 64).half(), **arguments})


def create_descriptor(tensor: torch.Tensor, **fields: Any) -> Any:
    return SimpleNamespace(base=tensor, shape=tensor.shape, strides=tensor.stride(), padding="zero", **fields)


def test_a_triton_descriptor_becomes_a_tensor_map_with_shape_and_strides() -> None:
    tensor = torch.zeros(48, 64, dtype=torch.float64)
    layout = {"swizzle": 3, "elem_size": 8, "elem_type": 9, "block_size": [16, 16], "fp4_padded": False}
    content, *host_arguments = triton_descriptors.passed(create_descriptor(tensor), layout)
    assert host_arguments == [48, 64, 64, 1]
    decoded = TensorMap.decode(content)
    assert decoded.type.name == "f64"  # float64 has the code 9 in the hardware and 8 in the driver API
    assert (decoded.extents, decoded.strides, decoded.box, decoded.swizzle) == ((64, 48), (512,), (16, 16), 3)


def test_a_triton_descriptor_before_hopper_becomes_separate_arguments() -> None:
    tensor = torch.zeros(4, 8)
    of_triton_3_6 = create_descriptor(tensor)
    of_triton_3_9 = create_descriptor(tensor, round_f32_to_tf32=False)
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


def test_the_transcript_ignores_unused_bytes_of_a_tensor_map() -> None:
    """CuTe's host code encodes maps itself: it sets bit 1 of the ninth byte and skips the bytes after the box."""
    driver = cuda.tensor_map(torch.zeros(64, 64).half(), (32, 32)).content
    content = driver[:8] + bytes([driver[8] | 2]) + driver[9:]
    module: Any = SimpleNamespace(parsed=ptx.parse(PREFETCHED))
    launches: list[Any] = [
        SimpleNamespace(kernel="k", arguments=[messages.Blob(map_bytes, [])])
        for map_bytes in (content, content[:60] + bytes(range(68)), content[:32] + b"\7" + content[33:])
    ]
    original, changed_padding, changed_extent = (zero_padding(module, launch) for launch in launches)
    assert original == changed_padding != changed_extent
