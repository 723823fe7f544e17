"""Formulas of predicates: which lanes use a value."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EVERYONE", "MOST", "NOBODY", "NO_ARMS", "Arms", "Formula", "Holds", "both", "either"]

MOST = 16  # terms of a formula, and predicates of a term


class Holds(NamedTuple):
    """The lanes in which a predicate holds, or does not; and their partners, by shuffles.

    The number of a partner differs from theirs in bits of ``spread``.
    """

    predicate: str
    negated: bool
    spread: int = 0


Term = frozenset[Holds]
Formula = frozenset[Term]
NOBODY: Formula = frozenset()
EVERYONE: Formula = frozenset([frozenset()])


class Arms(NamedTuple):
    """What the two ways from a branch do until they meet: the registers written, and the lanes that store.

    Which way a lane goes is of no consequence where it neither stores nor uses one of these registers.
    """

    written: frozenset[str] = frozenset()
    stores: Formula = NOBODY


NO_ARMS = Arms()


def either(one: Formula, other: Formula) -> Formula:
    """The lanes of one formula or of the other; all lanes, where the terms grow many."""
    if one == other or not other:
        return one
    if not one or other == EVERYONE:
        return other
    least = one
    for term in other:
        if not any(_covers(known, term) for known in least):
            least = frozenset([term, *(known for known in least if not _covers(term, known))])
    return least if len(least) <= MOST else EVERYONE


def _covers(one: Term, other: Term) -> bool:
    """Whether a term names all lanes that the other names: each of its predicates, or a narrower one, is there."""
    return all(any(_is_narrower(there, wanted) for there in other) for wanted in one)


def _is_narrower(one: Holds, other: Holds) -> bool:
    return (one.predicate, one.negated) == (other.predicate, other.negated) and not one.spread & ~other.spread


def both(literals: list[Holds], formula: Formula) -> Formula:
    """The lanes of a formula in which predicates hold too, as far as a term has room for them."""
    more = frozenset(literals)
    if not more:
        return formula
    grown = NOBODY
    for term in formula:
        whole = term | more
        grown = either(grown, frozenset([whole if len(whole) <= MOST else term]))
    return grown
