"""Check that no regular expression of the packages backtracks exponentially (ReDoS).

The grader matches text that a submission controls, so one exponential pattern would let a submission hang the grader.
Each pattern becomes a position automaton (Glushkov) with one state per character of the pattern. A path through the
automaton is one way to match. Backtracking is exponential if two different paths lead from a state back to itself
over the same text (Weideman et al., "Analyzing Matching Time Behavior of Backtracking Regular Expression Matchers by
Using Ambiguity of NFA", CIAA 2016). The check inspects the automaton and measures no time, so its result does not
depend on the machine.
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
# A repetition whose upper bound exceeds this number counts as unbounded.
LONG = 10

# Every character class contains at least one of these characters and excludes another.
BOUNDARIES = "\x00\t\n\r !\"#'()*+,-./09:;<=>@AZ[\\]^_`az{|}~\x7f\xa0éß中"


@dataclass
class Automaton:
    """Describe the position automaton of one part of a pattern.

    first, last: the positions where a match of this part can start and end, each with the number of ways. nullable: the
    number of ways to match the empty string.
    """

    first: Counter[int] = field(default_factory=Counter)
    last: Counter[int] = field(default_factory=Counter)
    nullable: int = 0


class Positions:
    """Hold all positions of a pattern.

    sets: the characters that each position matches. follow: the number of ways in which a position follows another.
    """

    def __init__(self, pattern: str, flags: int) -> None:
        self.characters = sorted({*BOUNDARIES, *pattern})
        self.sets: list[frozenset[str]] = []
        self.follow: Counter[tuple[int, int]] = Counter()
        self.flags = flags
        self.build_sequence(parser.parse(pattern, flags & ~re.TEMPLATE if sys.version_info < (3, 13) else flags))

    def build_sequence(self, items: Any) -> Automaton:
        automaton = Automaton(nullable=1)
        for operator, argument in items:
            automaton = self.concatenate(automaton, self.build_part(operator, argument))
        return automaton

    def concatenate(self, first_part: Automaton, second_part: Automaton) -> Automaton:
        self.connect(first_part.last, second_part.first)
        first = first_part.first + Counter(
            {at: ways * first_part.nullable for at, ways in second_part.first.items() if first_part.nullable}
        )
        last = second_part.last + Counter(
            {at: ways * second_part.nullable for at, ways in first_part.last.items() if second_part.nullable}
        )
        return Automaton(first, last, first_part.nullable * second_part.nullable)

    def connect(self, last: Counter[int], first: Counter[int]) -> None:
        for before, ways in last.items():
            for after, following_ways in first.items():
                self.follow[before, after] += ways * following_ways

    def unite(self, alternatives: Sequence[Automaton]) -> Automaton:
        union = Automaton()
        for alternative in alternatives:
            union = Automaton(
                union.first + alternative.first, union.last + alternative.last, union.nullable + alternative.nullable
            )
        return union

    def build_part(self, operator: Any, argument: Any) -> Automaton:
        name = str(operator)
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return self.add_position(
                frozenset(character for character in self.characters if self.takes(name, argument, character))
            )
        if name == "SUBPATTERN":
            return self.build_sequence(argument[-1])
        if name == "ATOMIC_GROUP":
            return self.build_sequence(argument)
        if name == "BRANCH":
            return self.unite([self.build_sequence(character) for character in argument[1]])
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            return self.repeat(*argument)
        if name in ("ASSERT", "ASSERT_NOT"):  # an assertion consumes no character of the outer pattern
            self.build_sequence(argument[1])
            return Automaton(nullable=1)
        if name in ("AT", "GROUPREF"):
            return Automaton(nullable=1)
        raise AssertionError(f"this test does not support the operator {name}")

    def repeat(self, minimum: int, maximum: Any, item: Any) -> Automaton:
        automaton = Automaton(nullable=1)
        for _ in range(min(minimum, 2)):
            automaton = self.concatenate(automaton, self.build_sequence(item))
        if maximum is sre.MAXREPEAT or maximum > LONG:
            loop = self.build_sequence(item)
            self.connect(loop.last, loop.first)
            return self.concatenate(automaton, Automaton(loop.first, loop.last, 1))
        for _ in range(maximum - minimum):
            optional = self.build_sequence(item)
            automaton = self.concatenate(automaton, Automaton(optional.first, optional.last, optional.nullable + 1))
        return automaton

    def add_position(self, characters: frozenset[str]) -> Automaton:
        self.sets.append(characters)
        at = len(self.sets) - 1
        return Automaton(Counter([at]), Counter([at]), 0)

    def takes(self, name: str, argument: Any, character: str) -> bool:
        if name == "ANY":
            return bool(self.flags & re.DOTALL) or character != "\n"
        if name == "IN":
            negated = argument[0][0] is sre.NEGATE
            return bool(negated) is not any(
                self.takes(str(operator), value, character) for operator, value in argument[negated:]
            )
        if name == "RANGE":
            return bool(argument[0] <= ord(character) <= argument[1])
        if name == "CATEGORY":
            escape = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[str(argument).rpartition("_")[2]]
            matches = re.match(escape, character) is not None
            return matches is not ("_NOT_" in str(argument))
        return bool(argument == ord(character)) is (name == "LITERAL")


def find_components(edges: dict[Any, list[Any]]) -> list[set[Any]]:
    """Return the strongly connected components of a graph (Tarjan's algorithm, without recursion)."""
    index: dict[Any, int] = {}
    low: dict[Any, int] = {}
    stack: list[Any] = []
    on_stack: set[Any] = set()
    strong_components = []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(edges.get(successor, ()))))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = set()
                    while True:
                        successor = stack.pop()
                        on_stack.discard(successor)
                        component.add(successor)
                        if successor == node:
                            break
                    strong_components.append(component)
    return strong_components


def is_exponential(pattern: str, flags: int = 0) -> bool:
    """Return whether some text leads from a position back to itself in two ways: each repetition doubles the ways."""
    positions = Positions(pattern, flags)
    after: dict[int, list[int]] = {at: [] for at in range(len(positions.sets))}
    for before, following in positions.follow:
        after[before].append(following)
    for component in find_components(after):
        # Two ways along one edge: the same position follows twice, as in (?:a*)*.
        inside = {(a, b) for a in component for b in after[a] if b in component}
        if any(positions.follow[edge] > 1 for edge in inside):
            return True
        # Product automaton: two paths that read the same text. A component that contains a pair (a, a) and a pair of
        # different positions has two paths from a back to a over the same text.
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
        for pair_component in find_components(pairs):
            if any(a == b for a, b in pair_component) and any(a != b for a, b in pair_component):
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
def test_a_pattern_that_backtracks_exponentially_is_detected(pattern: str) -> None:
    assert is_exponential(pattern)


@pytest.mark.parametrize("pattern", LINEAR)
def test_a_pattern_without_exponential_backtracking_is_accepted(pattern: str) -> None:
    assert not is_exponential(pattern)


def compiled_patterns() -> Iterator[tuple[str, str, int]]:
    """Yield the place, text, and flags of each compiled pattern in a global variable, tuple, list, or dictionary."""
    module_infos = [
        module_info
        for package in PACKAGES
        for module_info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    for module_info in module_infos:
        if module_info.name.rpartition(".")[2] == "__main__":
            continue
        try:
            module = importlib.import_module(module_info.name)
        except ImportError:  # the module needs a package that is not installed
            continue
        for name, value in vars(module).items():
            values = [value]
            if isinstance(value, dict):
                values = [*value, *value.values()]
            elif isinstance(value, (tuple, list)):
                values = list(value)
            for candidate in values:
                if isinstance(candidate, re.Pattern) and isinstance(candidate.pattern, str):
                    yield f"{module_info.name}.{name}", candidate.pattern, candidate.flags & ~re.UNICODE


def source_patterns() -> Iterator[tuple[str, str, int]]:
    """Yield the place, text, and flags of each constant pattern that a source file passes to a function of `re`."""
    functions = ("compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
    for path in grader_sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            receiver = node.func.value
            if not (isinstance(receiver, ast.Name) and receiver.id == "re" and node.func.attr in functions):
                continue
            pattern = node.args[0]
            if isinstance(pattern, ast.JoinedStr):  # assume that each inserted value is one word
                parts = [piece.value if isinstance(piece, ast.Constant) else "word" for piece in pattern.values]
                text = "".join(map(str, parts))
            elif isinstance(pattern, ast.Constant) and isinstance(pattern.value, str):
                text = pattern.value
            else:
                continue
            flags = re.DOTALL if "DOTALL" in ast.unparse(node) or "re.S" in ast.unparse(node) else 0
            flags |= re.VERBOSE if "VERBOSE" in ast.unparse(node) else 0
            yield f"{path}:{node.lineno}", text, flags


def test_no_pattern_of_the_packages_backtracks_exponentially() -> None:
    patterns = {*compiled_patterns(), *source_patterns()}
    assert len(patterns) > 100
    assert sorted(place for place, pattern, flags in patterns if is_exponential(pattern, flags)) == []
