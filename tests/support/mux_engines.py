"""Two engines of bymux or Jmux that exchange their bytes directly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.bymux.engine import BymuxEngine
    from mainstem.jmux.engine import JmuxEngine


def drain(engine: BymuxEngine | JmuxEngine) -> list[Any]:
    """Return the events that the engine has."""
    found: list[Any] = []
    while (event := engine.next_event()) is not None:
        found.append(event)
    return found


def shuttle(a: BymuxEngine | JmuxEngine, b: BymuxEngine | JmuxEngine, now_ns: int = 0) -> None:
    """Carry bytes both ways until neither end has more."""
    moved = True
    while moved:
        moved = False
        for source, target in ((a, b), (b, a)):
            if data := source.data_to_send():
                target.receive_data(data, now_ns)
                moved = True
