"""Combine formulas over predicates, in disjunctive normal form: they say which lanes use a value."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

__all__ = ["ALL_LANES", "MAX_TERMS", "NO_ARMS", "NO_LANES", "Arms", "Formula", "Literal", "conjoin", "disjoin"]

# Beyond it, disjoin gives all lanes and conjoin drops the new literals. Both only enlarge a demand, which is safe.
MAX_TERMS = 16  # terms of a formula, and predicates of a term


class Literal(NamedTuple):
    """The lanes in which a predicate holds, or does not; and their partners in shuffles.

    The number of a partner differs from theirs in bits of ``spread``.
    """

    predicate: str
    negated: bool
    spread: int = 0


Term = frozenset[Literal]
Formula = frozenset[Term]
NO_LANES: Formula = frozenset()
ALL_LANES: Formula = frozenset([frozenset()])


class Arms(NamedTuple):
    """The effects of the two arms of a branch until they join: the registers they write, and the lanes that store.

    Which arm a lane takes does not matter if it neither stores nor uses one of these registers.
    """

    written: frozenset[str] = frozenset()
    stores: Formula = NO_LANES


NO_ARMS = Arms()


# The passes over a kernel combine the same few formulas again and again: of 92,000 calls for eight kernels, 97 % were
# repeated. Without the cache, the analysis of an unrolled loop takes twice as long.
@lru_cache(maxsize=1 << 12)
def disjoin(first: Formula, second: Formula) -> Formula:
    """Return the lanes of either formula; all lanes if it would have too many terms."""
    if first == second or not second:
        return first
    if not first or second == ALL_LANES:
        return second
    # Absorption keeps the result small: a term that another one covers adds no lanes.
    minimal = first
    for term in second:
        if not any(_covers(term_of_result, term) for term_of_result in minimal):
            minimal = frozenset(
                [term, *(term_of_result for term_of_result in minimal if not _covers(term, term_of_result))]
            )
    return minimal if len(minimal) <= MAX_TERMS else ALL_LANES


def _covers(wider: Term, narrower: Term) -> bool:
    """Return whether a term holds for all lanes of a narrower one: that one implies each of its literals."""
    if wider <= narrower:
        return True
    # A literal without spread is implied by itself alone, and so a term of such literals by no set without them.
    return any(literal.spread for literal in wider) and all(
        any(_is_narrower(literal_there, literal) for literal_there in narrower) for literal in wider
    )


def _is_narrower(literal: Literal, wider: Literal) -> bool:
    # A literal with more bits of spread holds in more lanes: it includes their partners.
    return (literal.predicate, literal.negated) == (
        wider.predicate,
        wider.negated,
    ) and not literal.spread & ~wider.spread


def conjoin(literals: list[Literal], formula: Formula) -> Formula:
    """Return the lanes of a formula in which literals hold too, as far as the size of a term permits."""
    added = frozenset(literals)
    if not added:
        return formula
    result = NO_LANES
    for term in formula:
        extended = term | added
        # Without the added literals a term covers more lanes, never fewer.
        result = disjoin(result, frozenset([extended if len(extended) <= MAX_TERMS else term]))
    return result
