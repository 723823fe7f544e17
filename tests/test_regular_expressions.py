"""No regular expression of ours has two ways to match one text again and again: a hostile text would take for ever.

A pattern becomes a position automaton (Glushkov): a state for each character that it names. A path through the
automaton is one way to match. Backtracking is exponential where two different paths lead from a state back to itself
over the same text (Weideman et al., "Analyzing Matching Time Behavior of Backtracking Regular Expression Matchers by
Using Ambiguity of NFA", CIAA 2016). This test takes no time of anything, and so depends on no machine.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import kernelpath
import warpcheck
from kernelpath.files import grader_sources

_IN_RE = sys.version_info >= (3, 11)
sre: Any = importlib.import_module("re._constants" if _IN_RE else "sre_constants")
parser: Any = importlib.import_module("re._parser" if _IN_RE else "sre_parse")

PACKAGES = (kernelpath, warpcheck)
# A repetition with a bound beyond this is taken as one without.
LONG = 10

# Characters that between them are in and out of every class that a pattern can name.
BOUNDARIES = "\x00\t\n\r !\"#'()*+,-./09:;<=>@AZ[\\]^_`az{|}~\x7f\xa0éß中"


@dataclass
class Automaton:
    """The part of a position automaton that belongs to a part of a pattern.

    first, last: positions where a match of the part may begin and end, each with the number of ways. nullable: the
    number of ways to match nothing.
    """

    first: Counter[int] = field(default_factory=Counter)
    last: Counter[int] = field(default_factory=Counter)
    nullable: int = 0


class Positions:
    """All positions of a pattern: the characters that each one takes, and which may follow which in how many ways."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.characters = sorted({*BOUNDARIES, *pattern})
        self.sets: list[frozenset[str]] = []
        self.follow: Counter[tuple[int, int]] = Counter()
        self.flags = flags
        self.sequence(parser.parse(pattern, flags & ~re.TEMPLATE if sys.version_info < (3, 13) else flags))

    def sequence(self, items: Any) -> Automaton:
        whole = Automaton(nullable=1)
        for operator, argument in items:
            whole = self.joined(whole, self.part(operator, argument))
        return whole

    def joined(self, left: Automaton, right: Automaton) -> Automaton:
        self.connect(left.last, right.first)
        first = left.first + Counter({at: ways * left.nullable for at, ways in right.first.items() if left.nullable})
        last = right.last + Counter({at: ways * right.nullable for at, ways in left.last.items() if right.nullable})
        return Automaton(first, last, left.nullable * right.nullable)

    def connect(self, last: Counter[int], first: Counter[int]) -> None:
        for before, ways in last.items():
            for after, others in first.items():
                self.follow[before, after] += ways * others

    def either(self, alternatives: Sequence[Automaton]) -> Automaton:
        whole = Automaton()
        for one in alternatives:
            whole = Automaton(whole.first + one.first, whole.last + one.last, whole.nullable + one.nullable)
        return whole

    def part(self, operator: Any, argument: Any) -> Automaton:
        name = str(operator)
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return self.position(frozenset(one for one in self.characters if self.takes(name, argument, one)))
        if name == "SUBPATTERN":
            return self.sequence(argument[-1])
        if name == "ATOMIC_GROUP":
            return self.sequence(argument)
        if name == "BRANCH":
            return self.either([self.sequence(one) for one in argument[1]])
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            return self.repeated(*argument)
        if name in ("ASSERT", "ASSERT_NOT"):  # a pattern of its own, of which nothing is left afterwards
            self.sequence(argument[1])
            return Automaton(nullable=1)
        if name in ("AT", "GROUPREF"):
            return Automaton(nullable=1)
        raise AssertionError(f"{name} is not known to this test")

    def repeated(self, least: int, most: Any, item: Any) -> Automaton:
        whole = Automaton(nullable=1)
        for _ in range(min(least, 2)):
            whole = self.joined(whole, self.sequence(item))
        if most is sre.MAXREPEAT or most > LONG:
            loop = self.sequence(item)
            self.connect(loop.last, loop.first)
            return self.joined(whole, Automaton(loop.first, loop.last, 1))
        for _ in range(most - least):
            once = self.sequence(item)
            whole = self.joined(whole, Automaton(once.first, once.last, once.nullable + 1))
        return whole

    def position(self, characters: frozenset[str]) -> Automaton:
        self.sets.append(characters)
        at = len(self.sets) - 1
        return Automaton(Counter([at]), Counter([at]), 0)

    def takes(self, name: str, argument: Any, character: str) -> bool:
        if name == "ANY":
            return bool(self.flags & re.DOTALL) or character != "\n"
        if name == "IN":
            negated = argument[0][0] is sre.NEGATE
            return bool(negated) is not any(self.takes(str(one), value, character) for one, value in argument[negated:])
        if name == "RANGE":
            return bool(argument[0] <= ord(character) <= argument[1])
        if name == "CATEGORY":
            escape = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[str(argument).rpartition("_")[2]]
            matches = re.match(escape, character) is not None
            return matches is not ("_NOT_" in str(argument))
        return bool(argument == ord(character)) is (name == "LITERAL")


def components(edges: dict[Any, list[Any]]) -> list[set[Any]]:
    """The strongly connected components of a graph (Tarjan), without recursion."""
    index: dict[Any, int] = {}
    low: dict[Any, int] = {}
    stack: list[Any] = []
    on_stack: set[Any] = set()
    result = []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(edges.get(other, ()))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = set()
                    while True:
                        other = stack.pop()
                        on_stack.discard(other)
                        component.add(other)
                        if other == node:
                            break
                    result.append(component)
    return result


def is_exponential(pattern: str, flags: int = 0) -> bool:
    """Whether some text leads from a position back to itself in two ways: each further time doubles the ways."""
    positions = Positions(pattern, flags)
    after: dict[int, list[int]] = {at: [] for at in range(len(positions.sets))}
    for before, following in positions.follow:
        after[before].append(following)
    for component in components(after):
        inside = {(a, b) for a in component for b in after[a] if b in component}
        if any(positions.follow[edge] > 1 for edge in inside):
            return True
        pairs = {
            (a, b): [
                (c, d)
                for c in after[a]
                for d in after[b]
                if c in component and d in component and positions.sets[c] & positions.sets[d]
            ]
            for a in component
            for b in component
        }
        for together in components(pairs):
            if any(a == b for a, b in together) and any(a != b for a, b in together):
                return True
    return False


EXPONENTIAL = (
    r"(a+)+b",
    r"(?:a*)*",
    r"(?:a|a)*b",
    r"(?:\s|//[^\n]*|/\*.*?\*/)*}",
    r"(?:a?b?)*c",
    r"(?:\w+\s*)*;",
    r"(?:ab|a|b)*c",
    r"(?:[^;{}]*;?)*x",
    r"(?:x{0,20})*y",
)
LINEAR = (
    r"(?:\w+\s)*;",
    r"(?:\s|const [^;{}]*;)*",
    r'"(?:[^"\\\n]|\\.)*"',
    r"(?:a|b)*c",
    r"a*b*c*",
    r"x[^{;]{0,4096}(\{)",
    r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/",
)


@pytest.mark.parametrize("pattern", EXPONENTIAL)
def test_the_test_finds_what_never_ends(pattern: str) -> None:
    assert is_exponential(pattern)


@pytest.mark.parametrize("pattern", LINEAR)
def test_the_test_spares_what_ends(pattern: str) -> None:
    assert not is_exponential(pattern)


def compiled() -> Iterator[tuple[str, str, int]]:
    """The patterns among the globals of our modules, also in tuples and dictionaries, by their places."""
    found = [info for package in PACKAGES for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    for info in found:
        if info.name.rpartition(".")[2] == "__main__":
            continue
        try:
            module = importlib.import_module(info.name)
        except ImportError:  # of a package that is not installed
            continue
        for name, value in vars(module).items():
            values = [value]
            if isinstance(value, dict):
                values = [*value, *value.values()]
            elif isinstance(value, (tuple, list)):
                values = list(value)
            for one in values:
                if isinstance(one, re.Pattern) and isinstance(one.pattern, str):
                    yield f"{info.name}.{name}", one.pattern, one.flags & ~re.UNICODE


def written() -> Iterator[tuple[str, str, int]]:
    """The patterns that are arguments of the functions of re in our sources, where they are constants."""
    functions = ("compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
    for path in grader_sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            of = node.func.value
            if not (isinstance(of, ast.Name) and of.id == "re" and node.func.attr in functions):
                continue
            pattern = node.args[0]
            if isinstance(pattern, ast.JoinedStr):  # what is inserted is one word
                parts = [part.value if isinstance(part, ast.Constant) else "word" for part in pattern.values]
                text = "".join(map(str, parts))
            elif isinstance(pattern, ast.Constant) and isinstance(pattern.value, str):
                text = pattern.value
            else:
                continue
            flags = re.DOTALL if "DOTALL" in ast.unparse(node) or "re.S" in ast.unparse(node) else 0
            flags |= re.VERBOSE if "VERBOSE" in ast.unparse(node) else 0
            yield f"{path}:{node.lineno}", text, flags


def test_no_pattern_of_ours_never_ends() -> None:
    patterns = {*compiled(), *written()}
    assert len(patterns) > 100
    assert sorted(place for place, pattern, flags in patterns if is_exponential(pattern, flags)) == []
