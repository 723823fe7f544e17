"""Python's own parser reads `call`; comments are found by line. The function has a where in place of the clamp."""

import ast
import math
import re

import torch

VIEWS = "expand permute select slice squeeze t transpose unsqueeze view"
MOVES = {"clone", "copy", *VIEWS.split(" ")}


def named(node, alias):
    """The buffer that an expression stands for."""
    if isinstance(node, ast.Subscript):
        return named(node.value, alias)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "reinterpret_tensor":
        return named(node.args[0], alias)
    return alias.get(node.id, node.id) if isinstance(node, ast.Name) else ""


class Module:
    def __init__(self, text):
        self.lines = text.split("\n")
        self.alias, self.sizes, self.launches = {}, {}, []
        found = re.findall(r"@triton_heuristics\.(\w+)\((?:.|\n)*?\ndef (\w+)\(([^)]*)\)", text)
        parameter = re.compile(r"(\w+)(?: :[^,]*)?(?:, |$)")
        self.kernels = {name: (kind, parameter.findall(parameters)) for kind, name, parameters in found}
        functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
        (call,) = (node for node in functions if node.name == "call")
        statements = (node for node in ast.walk(call) if isinstance(node, (ast.Assign, ast.Expr)))
        for node in sorted(statements, key=lambda node: node.lineno):
            self.statement(node)

    def statement(self, node):
        target = node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else ""
        value = node.value
        function = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        if function == "empty_strided_cuda":
            shape, dtype = ast.literal_eval(value.args[0]), getattr(torch, value.args[2].attr)
            self.sizes[target] = math.prod(shape) * dtype.itemsize
        elif function.endswith(".run"):
            self.triton(function[:-4], value)
        elif function.startswith(("extern_kernels.", "torch.ops.")):
            out = {named(one.value, self.alias) for one in value.keywords if one.arg == "out"} | ({target} - {""})
            reads = {named(one, self.alias) for one in value.args} - out
            self.launches.append((function, "extern", self.operators(value.lineno), reads, out))
        elif target.startswith("buf"):
            self.alias[target] = named(value, self.alias)

    def triton(self, name, call):
        kind, parameters = self.kernels[name]
        before = {buffer for launch in self.launches for buffer in launch[4]}
        pairs = [(one, named(value, self.alias)) for one, value in zip(parameters, call.args)]  # noqa: B905
        writes = {buffer for one, buffer in pairs if "out_ptr" in one}
        reads = {buffer for one, buffer in pairs if one.startswith("in_ptr")}
        reads |= {buffer for one, buffer in pairs if one.startswith("in_out") and buffer in before}
        self.launches.append((name, kind, self.operators(call.lineno), reads, writes))

    def operators(self, line):
        """Of the last comment above a line."""
        comments = (one for one in reversed(self.lines[:line]) if "Original ATen: [" in one)
        return re.findall(r"(?:aten\.)?([\w.]+)", next(comments).rpartition("Original ATen: [")[2])

    def reason(self, at, number):
        _, kind, operators, reads, _ = self.launches[at]
        kinds = [one[1] for one in self.launches[:at] if one[4] & reads]
        rules = {
            "layout": kind != "extern" and set(operators) <= MOVES,
            "graph break": at == 0 and number > 0,
            "first": at == 0,
            "extern": "extern" in [kind, *kinds],
            "reduction": any(one.endswith(("reduction", "scan")) for one in kinds),
            "shape": bool(kinds),
            "independent": True,
        }
        return next(name for name, holds in rules.items() if holds)


def report(code):
    parts = re.split(r"(?m)^# graph \d+ of \d+\n", code.read_text())[1:]
    modules = [Module(part) for part in parts]
    crossing = 0
    for module in modules:
        pairs = [(one, other) for at, other in enumerate(module.launches) for one in module.launches[:at]]
        names = {name for one, other in pairs for name in one[4] & other[3]}
        crossing += sum(module.sizes.get(name, 0) for name in names)
    launches = [launch for module in modules for launch in module.launches]
    return {
        "graphs": len(modules),
        "kernels": [launch[0] for launch in launches],
        "kinds": [launch[1] for launch in launches],
        "operators": [", ".join(launch[2]) for launch in launches],
        "reasons": [one.reason(at, number) for number, one in enumerate(modules) for at in range(len(one.launches))],
        "intermediate_bytes": crossing,
    }


def gated_fused(x, scale, bias):
    root = (x.pow(2).sum(1, keepdim=True) / x.size(1) + 1e-6).rsqrt()
    normed = x * root
    normed = torch.where(normed > 8, 8.0, torch.where(normed < -8, -8.0, normed))
    return torch.nn.functional.gelu(torch.addcmul(bias, normed, scale))
