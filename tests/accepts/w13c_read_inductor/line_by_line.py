"""No table of patterns: strings are taken apart where they stand, a graph is a list of dicts. The fused function spells
the normalization with torch's own operator, and the clamp as two minima."""

from pathlib import Path

import torch

SIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "bool": 1, "uint8": 1, "int8": 1}
ONLY_MOVE = ["clone", "copy", "expand", "permute", "select", "slice", "squeeze", "t", "transpose", "unsqueeze", "view"]


def split_arguments(text):
    """At the commas outside of parentheses."""
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return [*parts, part.strip()]


def report(code):
    text = Path(code).read_text()
    graphs, kernels = [], {}
    kind, comment, in_call, names = "", "", False, {}
    for line in text.split("\n"):
        stripped = line.strip()
        if line.startswith("# graph ") and " of " in line:
            graphs.append({"launches": [], "bytes": {}})
            kernels, names, in_call = {}, {}, False
        elif line.startswith("@triton_heuristics."):
            kind = line[len("@triton_heuristics.") : line.index("(")]
        elif line.startswith("def triton_"):
            name, _, rest = line[4:].partition("(")
            kernels[name] = (kind, [one.split(":")[0].strip() for one in rest.rpartition(")")[0].split(",")])
        elif stripped.startswith("def call("):
            in_call = True
        elif not in_call:
            continue
        elif "Original ATen: [" in stripped:
            inside = stripped.split("Original ATen: [")[1].rstrip("]")
            comment = inside.replace("aten.", "")
        elif " = empty_strided_cuda(" in stripped and stripped.startswith("buf"):
            buffer, _, call = stripped.partition(" = empty_strided_cuda(")
            shape, _, dtype = split_arguments(call[:-1])
            elements = 1
            for size in shape.strip("()").split(","):
                elements *= int(size) if size.strip() else 1
            graphs[-1]["bytes"][buffer] = elements * SIZES[dtype.removeprefix("torch.")]
        elif ".run(" in stripped:
            kernel, _, call = stripped.partition(".run(")
            kind_, parameters = kernels[kernel]
            add(graphs[-1]["launches"], kernel, kind_, comment)
            launch, before = graphs[-1]["launches"][-1], graphs[-1]["launches"][:-1]
            for parameter, argument in zip(parameters, split_arguments(call[:-1])):  # noqa: B905
                buffer = resolved(argument, names)
                if parameter.startswith(("out_ptr", "in_out_ptr")):
                    launch["writes"].add(buffer)
                if parameter.startswith("in_ptr"):
                    launch["reads"].add(buffer)
                if parameter.startswith("in_out_ptr") and any(buffer in one["writes"] for one in before):
                    launch["reads"].add(buffer)
        elif "extern_kernels." in stripped or "torch.ops." in stripped:
            left, _, call = stripped.partition(" = ") if stripped.startswith("buf") else ("", "", stripped)
            kernel, _, given = call.partition("(")
            if not kernel.startswith(("extern_kernels.", "torch.ops.")):
                continue
            add(graphs[-1]["launches"], kernel, "extern", comment)
            launch = graphs[-1]["launches"][-1]
            if left:
                launch["writes"].add(left)
            for argument in split_arguments(given[:-1]):
                if argument.startswith("out="):
                    launch["writes"].add(resolved(argument[4:], names))
                elif argument.startswith(("buf", "reinterpret_tensor(buf")):
                    launch["reads"].add(resolved(argument, names))
        elif stripped.startswith("buf") and " = " in stripped:
            left, _, right = stripped.partition(" = ")
            right = right.split(";")[0]
            if right.startswith(("buf", "reinterpret_tensor(buf")):
                names[left] = resolved(right.split("[")[0] if right.startswith("buf") else right, names)

    every = [launch for graph in graphs for launch in graph["launches"]]
    return {
        "graphs": len(graphs),
        "kernels": [one["kernel"] for one in every],
        "kinds": [one["kind"] for one in every],
        "operators": [one["operators"] for one in every],
        "reasons": [why(graphs, number, at) for number, one in enumerate(graphs) for at in range(len(one["launches"]))],
        "intermediate_bytes": sum(crossing(graph) for graph in graphs),
    }


def add(launches, kernel, kind, operators):
    launches.append({"kernel": kernel, "kind": kind, "operators": operators, "reads": set(), "writes": set()})


def resolved(argument, names):
    if argument.startswith("reinterpret_tensor("):
        argument = split_arguments(argument[len("reinterpret_tensor(") :])[0]
    return names.get(argument, argument)


def why(graphs, number, at):
    launch = graphs[number]["launches"][at]
    sources = [one for one in graphs[number]["launches"][:at] if one["writes"] & launch["reads"]]
    if launch["kind"] != "extern" and all(name.strip() in ONLY_MOVE for name in launch["operators"].split(",")):
        return "layout"
    if at == 0:
        return "first" if number == 0 else "graph break"
    if launch["kind"] == "extern" or [one for one in sources if one["kind"] == "extern"]:
        return "extern"
    if [one for one in sources if one["kind"] in ("reduction", "persistent_reduction", "split_scan")]:
        return "reduction"
    return "shape" if sources else "independent"


def crossing(graph):
    written, read = set(), set()
    for launch in graph["launches"]:
        read |= launch["reads"] & written
        written |= launch["writes"]
    return sum(graph["bytes"].get(name, 0) for name in read)


def gated_fused(x, scale, bias):
    normed = torch.nn.functional.rms_norm(x, (x.shape[1],), eps=1e-6)
    held = torch.minimum(torch.maximum(normed, normed.new_tensor(-8.0)), normed.new_tensor(8.0))
    return torch.nn.functional.gelu(held * scale + bias)
