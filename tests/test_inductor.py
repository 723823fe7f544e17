"""Test the facts about Inductor's code, its generation without a GPU, and the reports of graph breaks."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn import functional as F

from kernelpath.course.traces import Malformed, inductor, recordings
from warpcheck.frontends.inductor import GraphBreak, written

SMALL = """# graph 1 of 2
@triton_heuristics.reduction(
    size_hints={'x': 512},
)
@triton.jit
def triton_red_fused_sum_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass

@triton_heuristics.pointwise(
)
@triton.jit
def triton_poi_fused_add_1(in_out_ptr0, in_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass

    def call(self, args):
            buf0 = empty_strided_cuda((8, 3), (3, 1), torch.bfloat16)
            # Topologically Sorted Source Nodes: [s], Original ATen: [aten.mul, aten.sum]
            triton_red_fused_sum_0.run(arg0_1, buf0, 24, stream=raw_stream0)
            buf1 = empty_strided_cuda((), (), torch.float32)
            # Topologically Sorted Source Nodes: [mm], Original ATen: [aten.mm]
            extern_kernels.mm(reinterpret_tensor(buf0, (3, 8), (1, 3), 0), arg1_1, out=buf1)
            buf2 = buf1; del buf1  # reuse
            # Topologically Sorted Source Nodes: [a], Original ATen: [aten.add]
            triton_poi_fused_add_1.run(buf2, arg1_1, 1, stream=raw_stream0)
        return (buf2, )
# graph 2 of 2
@triton_heuristics.pointwise(
)
@triton.jit
def triton_poi_fused_clone_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass

    def call(self, args):
            buf0 = empty_strided_cuda((70000, ), (1, ), torch.int64)
            # Topologically Sorted Source Nodes: [c], Original ATen: [aten.permute, aten.clone]
            triton_poi_fused_clone_0.run(arg0_1, buf0, 70000, stream=raw_stream0)
        return (buf0, )
"""


def test_facts_of_a_file() -> None:
    assert inductor.of(SMALL) == {
        "graphs": 2,
        "kernels": [
            *("triton_red_fused_sum_0", "extern_kernels.mm", "triton_poi_fused_add_1"),
            "triton_poi_fused_clone_0",
        ],
        "kinds": ["reduction", "extern", "pointwise", "pointwise"],
        "operators": ["mul, sum", "mm", "add", "permute, clone"],
        "reasons": ["first", "extern", "extern", "layout"],
        "intermediate_bytes": 8 * 3 * 2 + 4,  # buf0, and buf1 under its second name
    }


def test_an_in_place_buffer_is_read_if_an_earlier_launch_wrote_it() -> None:
    first, second = (launch for launch in inductor.graphs(SMALL)[0].launches if not launch.extern)
    assert ([*first.reads], [*first.writes]) == ([], ["buf0"])
    assert ([*second.reads], [*second.writes]) == (["buf1"], ["buf1"])


def test_a_file_without_graphs_is_malformed() -> None:
    with pytest.raises(Malformed, match="graph 1 of 1"):
        inductor.of("import torch\n")


@pytest.mark.parametrize("name", ["attention0", "guarded0", "ordered1"])
def test_renumbered_code_is_the_same_program(name: str) -> None:
    text = recordings.read("inductor", f"{name}.py").decode()
    varied = inductor.renumber(random.Random(3), text)
    before, after = inductor.of(text), inductor.of(varied)
    assert before["kernels"] != after["kernels"]
    assert {**before, "kernels": ()} == {**after, "kernels": ()}


def kernels(*codes: str) -> list[str]:
    return [launch.kernel for graph in inductor.graphs(inductor.joined(codes)) for launch in graph.launches]


def test_code_for_a_gpu_is_written_without_one() -> None:
    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)).t().contiguous() @ weight

    x, weight = torch.randn(64, 1000), torch.randn(64, 32)
    generated = written(norm, x, weight, whole=True)
    torch.testing.assert_close(generated.result, norm(x, weight))
    first, product = kernels(*generated.codes)
    assert first.startswith("triton_per_fused_")
    assert product == "extern_kernels.mm"
    assert "cuda" in generated.codes[0]
    assert not torch.cuda.is_initialized()


def test_a_graph_break_names_its_line() -> None:
    def branch_on_data(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x

    def call_disabled_function(x: torch.Tensor) -> torch.Tensor:
        return F.relu(torch.compiler.disable(torch.sin)(x))

    assert len(written(branch_on_data, torch.ones(100)).codes) == 2
    with pytest.raises(GraphBreak, match=rf"^line {branch_on_data.__code__.co_firstlineno + 1}: Data-dependent"):
        written(branch_on_data, torch.ones(100), whole=True)
    with pytest.raises(GraphBreak):
        written(call_disabled_function, torch.ones(100), whole=True)
