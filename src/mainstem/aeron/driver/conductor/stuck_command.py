"""Frees the to-driver buffer when a client died between claiming a record and finishing it (aeron-behaviour §3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.system_counter import SystemCounter

if TYPE_CHECKING:
    from mainstem.aeron.driver.resources import Resources


class StuckCommand:
    """Watches whether the buffer's head moves while there is something to read."""

    def __init__(self, resources: Resources, now_ns: int) -> None:
        self._resources = resources
        self._position = resources.to_driver.consumer_position
        self._since_ns = now_ns

    def on_timer(self, now_ns: int) -> None:
        """Unblocks the buffer once its head has stood still for the client liveness timeout."""
        ring = self._resources.to_driver
        position = ring.consumer_position
        if position != self._position or position == ring.producer_position:
            self._position = position
            self._since_ns = now_ns
        elif now_ns - self._since_ns >= self._resources.settings.client_liveness_timeout_ns:
            self._since_ns = now_ns
            if ring.unblock():
                self._resources.count(SystemCounter.UNBLOCKED_COMMANDS)
