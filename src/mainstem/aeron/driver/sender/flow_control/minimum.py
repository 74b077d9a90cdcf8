"""The slowest receiver sets the pace, of all of them or of those with one tag (behaviour, 17: ``min`` and ``tagged``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.clock import NEVER_NS

if TYPE_CHECKING:
    from mainstem._core.driver.send_path import SendPath
    from mainstem.aeron.protocol.frames import StatusMessage

RECEIVER_TIMEOUT_NS = 5_000_000_000
# The silence of receivers is looked at this many times in their timeout.
CHECKS = 8


class MinFlowControl:
    """The limit is the least of what the group's receivers allow.

    ``group_tag`` None counts every receiver, else those whose status messages carry it. The publication is connected while
    ``group_min_size`` or more are there; below that the limit stands still. A receiver is dropped after ``receiver_timeout_ns``.
    """

    tracks_minimum = True

    def __init__(
        self,
        *,
        group_tag: int | None = None,
        group_min_size: int = 0,
        receiver_timeout_ns: int = RECEIVER_TIMEOUT_NS,
        window_multiple: int | None = None,
    ) -> None:
        self.group_tag = group_tag
        self.group_min_size = group_min_size
        self.receiver_timeout_ns = receiver_timeout_ns
        self.window_multiple = window_multiple
        self.deadline_ns = NEVER_NS
        self._is_elicited = False
        self._guard_until_ns = NEVER_NS

    def prepare(self, path: SendPath) -> None:
        path.tracks_minimum = True
        self._set_group(path)

    def on_receiver(self, path: SendPath, status: StatusMessage, edge: int, now_ns: int) -> bool:
        """Admits a receiver of the group unless it is so far behind that it would stall the others."""
        if not self._belongs(status):
            return False
        edges = [row[1] for row in path.receivers() if row[3]]
        if edges and edge < min(edges) - status.receiver_window:
            return False
        self._lift_guard(path)
        self._arm(now_ns)
        return True

    def on_change(self, path: SendPath, now_ns: int) -> None:
        self._set_group(path)
        self._arm(now_ns)

    def on_elicited(self, path: SendPath, status: StatusMessage, now_ns: int) -> None:  # noqa: ARG002
        if self._belongs(status):
            self._is_elicited = True

    def on_setup_sent(self, path: SendPath, now_ns: int) -> None:
        """From here a joining receiver starts: until it reports, the others must not run away from it."""
        if self._is_elicited:
            self._is_elicited = False
            path.limit_cap = path.sender_limit
            self._guard_until_ns = now_ns + self.receiver_timeout_ns
            self._arm(now_ns)

    def on_time(self, path: SendPath, now_ns: int) -> None:
        for receiver_id, _, heard_ns, counts in path.receivers():
            if counts and now_ns - heard_ns > self.receiver_timeout_ns:
                path.discount_receiver(receiver_id)
        if now_ns >= self._guard_until_ns:
            self._lift_guard(path)
        self._set_group(path)
        self._arm(now_ns)

    def group_size(self, path: SendPath) -> int:
        return sum(1 for row in path.receivers() if row[3])

    def _belongs(self, status: StatusMessage) -> bool:
        return self.group_tag is None or status.group_tag == self.group_tag

    def _set_group(self, path: SendPath) -> None:
        complete = self.group_size(path) >= self.group_min_size
        path.group_ready = complete
        path.limit_frozen = not complete

    def _lift_guard(self, path: SendPath) -> None:
        self._guard_until_ns = NEVER_NS
        path.limit_cap = NEVER_NS

    def _arm(self, now_ns: int) -> None:
        self.deadline_ns = min(now_ns + self.receiver_timeout_ns // CHECKS, self._guard_until_ns)
