"""Test the encoding of tensor maps, and the arguments that the driver rejects."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from warpcheck.tensor_map import ELEMENT_TYPES, TensorMap, encode_tiled

F16 = ELEMENT_TYPES[6]


def test_the_encoded_fields_of_a_half_precision_matrix() -> None:
    encoded = encode_tiled(6, 0x7F0012345600, [4096, 512], [8192], [64, 128], [1, 1], 0, 3, 2)
    address, flags, stride, *_, columns, rows = struct.unpack_from("<QII3I1I2I", encoded)
    assert (address, stride, columns, rows) == (0x7F0012345600, 8192 >> 4, 4095, 511)
    # The rank minus 1, the element type, the swizzle, and the L2 promotion.
    assert flags == 1 << 4 | 6 << 7 | 3 << 13 | 2 << 17
    assert struct.unpack_from("<II", encoded, 52) == (63 << 24, 127)


@pytest.mark.parametrize("kind", ELEMENT_TYPES, ids=lambda kind: kind.name)
def test_decoding_an_encoded_map_returns_it(kind: object) -> None:
    assert isinstance(kind, type(F16))
    strides = (1 << 39, 16, (1 << 40) - 16, 4096)
    tensor = TensorMap(
        kind, 1 << 47, (1 << 32, 1, 3, 70, 5), strides, (256, 1, 7, 255, 16), (8, 1, 2, 3, 7), 0, 1, 3, True
    )
    for rank in range(1, 6):
        shape = (tensor.extents, tensor.box, tensor.steps)
        extents, box, steps = (values[:rank] for values in shape)
        shorter = replace(tensor, extents=extents, strides=strides[: rank - 1], box=box, steps=steps)
        assert TensorMap.decode(shorter.encode()) == shorter
        assert len(shorter.encode()) == 128


def test_element_strides_reduce_the_elements_of_a_box() -> None:
    assert TensorMap(F16, 256, (64, 64), (128,), (16, 7), (2, 3)).counts == (16, 3)


@pytest.mark.parametrize("content", [bytes(128), b"\xff" * 128])
def test_decoding_other_bytes_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match="no tensor map"):
        TensorMap.decode(content)


VALID: dict[str, Any] = {"address": 1 << 20, "extents": [64, 32], "strides": [128], "box": [32, 8], "steps": [1, 1]}
INVALID: dict[str, dict[str, Any]] = {
    "globalAddress 0x100008 is not a multiple of 16": {"address": 0x100008},
    r"globalDim\[1\] is 0": {"extents": [64, 0]},
    r"globalDim\[0\] is 4294967297": {"extents": [(1 << 32) + 1, 1]},
    r"globalStrides\[0\] is 100 bytes": {"strides": [100]},
    r"globalStrides\[0\] is 1099511627776 bytes": {"strides": [1 << 40]},
    r"boxDim\[1\] is 257": {"box": [32, 257]},
    r"boxDim\[0\] is 9 elements, 18 bytes: it must be a multiple of 16": {"box": [9, 8]},
    r"boxDim\[0\] is 64 elements, 128 bytes: more than the 64 of CU_TENSOR_MAP_SWIZZLE_64B": {
        "box": [64, 8],
        "swizzle": 2,
    },
    r"elementStrides\[1\] is 9": {"steps": [1, 9]},
    "swizzle is 5": {"swizzle": 5},
    "the box has 262,144 bytes, more than the 233,472": {
        "box": [32, 64, 64],
        "extents": [64, 64, 64],
        "strides": [128, 8192],
        "steps": [1, 1, 1],
    },
    "globalAddress 0x100010 is not a multiple of 32": {"data_type": 14, "address": 0x100010},
    r"globalDim\[0\] is 64, it must be a multiple of 128 for b6x16_p32": {"data_type": 15},
    r"boxDim\[0\] is 64, it must be 128 for b4x16_p64": {"data_type": 14, "extents": [128, 32], "box": [64, 8]},
    r"boxDim\[0\] is 16 elements, 8 bytes: it must be a multiple of 16 bytes": {"data_type": 13, "box": [16, 8]},
    "NaN is for floating-point types": {"data_type": 2, "oob_fill": 1},
    "tensorRank is 6": {"extents": [1] * 6, "strides": [16] * 5, "box": [16] + [1] * 5, "steps": [1] * 6},
    "an interleaved tensor has at least 3 axes": {"interleave": 1},
}


@pytest.mark.parametrize("rule", INVALID)
def test_encoding_invalid_arguments_is_an_error(rule: str) -> None:
    with pytest.raises(ValueError, match="CUDA_ERROR_INVALID_VALUE: .*" + rule):
        encode_tiled(**({"data_type": 6} | VALID | INVALID[rule]))
