"""Shrink a failing run to the smallest one that fails in the same way: shorter, with fewer faults of fewer kinds.

Each attempt is a complete run with a ``Plan`` that leaves more out. Faults that are left out are still drawn, so the others stay
the same, but the run differs and may pass. An attempt that still fails is the starting point of the next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from mainstem.sim.schedule import Plan

MAX_TRIES = 200  # runs: a case with a dozen kinds and ten faults needs some fifty
SIZES = (0.02, 0.05, 0.1, 0.25, 0.5)


def shrink(plan: Plan, kinds: Collection[str], faults: Collection[int], fails: Callable[[Plan], bool]) -> Plan:
    """The smallest plan found that still fails.

    ``kinds`` and ``faults`` are those that occurred in the failing run of ``plan``; ``fails`` runs a plan.
    """
    tries = 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(plan, kinds, faults):
            if tries >= MAX_TRIES:
                return plan
            tries += 1
            if fails(smaller):
                plan, is_smaller = smaller, True
                break
    return plan


def _smaller(plan: Plan, kinds: Collection[str], faults: Collection[int]) -> Iterator[Plan]:
    """Yield plans that leave more out, those that leave out most first."""
    without = frozenset(kinds) - plan.without
    dropped = frozenset(faults) - plan.dropped
    if dropped:
        yield replace(plan, dropped=plan.dropped | dropped)
    if len(without) > 1:
        yield replace(plan, without=plan.without | without)
    yield from (replace(plan, without=plan.without | {kind}) for kind in sorted(without))
    yield from (replace(plan, dropped=plan.dropped | {number}) for number in sorted(dropped))
    yield from (replace(plan, size=size) for size in SIZES if plan.size is None or size < plan.size)
