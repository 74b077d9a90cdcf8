"""What is run over many seeds. Each takes a World, raises when a promise is broken, and says in a line what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.sim.scenarios.unicast import unicast

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.sim.world import World

SCENARIOS: dict[str, Callable[[World], str]] = {
    "unicast": unicast,
}
