"""The fastest receiver sets the pace: the limit only rises (behaviour, 17: ``max``, and unicast)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.clock import NEVER_NS

if TYPE_CHECKING:
    from mainstem._core.driver.send_path import SendPath
    from mainstem.aeron.protocol.frames import StatusMessage


class MaxFlowControl:
    """No receiver is ever waited for."""

    tracks_minimum = False
    deadline_ns = NEVER_NS

    def __init__(self, window_multiple: int | None = None) -> None:
        self.window_multiple = window_multiple

    def prepare(self, path: SendPath) -> None:
        path.tracks_minimum = False

    def on_receiver(self, path: SendPath, status: StatusMessage, edge: int, now_ns: int) -> bool:  # noqa: ARG002
        return True

    def on_change(self, path: SendPath, now_ns: int) -> None:
        """Nothing depends on who is there."""

    def on_elicited(self, path: SendPath, status: StatusMessage, now_ns: int) -> None:
        """Nothing to guard: the limit never falls."""

    def on_setup_sent(self, path: SendPath, now_ns: int) -> None:
        """Nothing to guard."""

    def on_time(self, path: SendPath, now_ns: int) -> None:
        """There is no deadline."""

    def group_size(self, path: SendPath) -> int:
        return path.receiver_count
