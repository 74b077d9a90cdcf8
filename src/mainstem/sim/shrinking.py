"""Reduces a failing run to the smallest one that fails in the same way: shorter, with fewer kinds of faults and fewer of them.

Each try is a whole run with a ``Plan`` that leaves more out. What is left out is drawn all the same, so that the rest of the faults
stay as they were; the run itself is another one, and may pass. A try that still fails is where the next one starts.
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
    """Finds the smallest plan that still fails.

    Args:
        plan: The plan of the run that failed.
        kinds: The kinds of faults that struck in it.
        faults: The numbers of its scheduled faults.
        fails: Whether a run with a plan fails as that run did.

    Returns:
        A plan from which nothing more can be left out, as far as tries reach.
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
    """Plans that leave more out, those that leave out most first."""
    without = frozenset(kinds) - plan.without
    dropped = frozenset(faults) - plan.dropped
    if dropped:
        yield replace(plan, dropped=plan.dropped | dropped)
    if len(without) > 1:
        yield replace(plan, without=plan.without | without)
    yield from (replace(plan, without=plan.without | {kind}) for kind in sorted(without))
    yield from (replace(plan, dropped=plan.dropped | {number}) for number in sorted(dropped))
    yield from (replace(plan, size=size) for size in SIZES if plan.size is None or size < plan.size)
