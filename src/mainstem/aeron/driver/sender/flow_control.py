"""Flow control: how far a sender may send, given the reports of its receivers (docs/protocols/aeron.md, 17).

The compiled send path handles ordinary status messages of known receivers without calling this module. It moves the limit
according to switches that the strategy sets. With ``tracks_minimum``, the limit is the minimum of the counted receivers; without
it, the limit only rises. ``limit_frozen`` stops the limit while the group is incomplete. ``limit_cap`` caps it while a receiver
joins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NEVER_NS
from mainstem._internal.frozen import frozen
from mainstem.aeron.channel_values import FlowControlParams, FlowControlStrategy

if TYPE_CHECKING:
    from mainstem._core.driver.send_path import SendPath
    from mainstem.aeron.protocol.frames import StatusMessage

RECEIVER_TIMEOUT_NS = 5_000_000_000
# Checks for silent receivers per receiver timeout.
CHECKS = 8


class FlowControl:
    """The base class of flow control strategies, which decide which receivers count toward the sender's limit.

    This class counts all of them. Only the sender's thread uses a strategy. ``window_multiple`` limits retransmission; None is the
    reference's default. ``deadline_ns`` is when ``on_time`` is due. An ``edge`` is a receiver's position plus its window.
    """

    tracks_minimum = False
    deadline_ns = NEVER_NS

    def __init__(self, window_multiple: int | None = None) -> None:
        self.window_multiple = window_multiple

    def prepare(self, path: SendPath) -> None:
        """Set the switches of a new path, before its first duty cycle."""
        path.tracks_minimum = self.tracks_minimum

    def on_receiver(self, path: SendPath, status: StatusMessage, edge: int, now_ns: int) -> bool:  # noqa: ARG002
        """Handle a report of a receiver that doesn't count yet; return whether it counts from now on."""
        return True

    def on_change(self, path: SendPath, now_ns: int) -> None:
        """Called after receivers were added or removed."""

    def on_elicited(self, path: SendPath, status: StatusMessage, now_ns: int) -> None:
        """Called when a receiver requests a SETUP."""

    def on_setup_sent(self, path: SendPath, now_ns: int) -> None:
        """Called after a SETUP was sent."""

    def on_time(self, path: SendPath, now_ns: int) -> None:
        """Called once ``deadline_ns`` has passed."""

    def group_size(self, path: SendPath) -> int:
        """Return the number of receivers that count."""
        return path.receiver_count


class UnicastFlowControl(FlowControl):
    """Flow control whose limit follows the receiver's window and only rises.

    The sender doesn't wait for a receiver that falls behind.
    """


class MaxMulticastFlowControl(UnicastFlowControl):
    """Flow control by the fastest receiver of a group (``fc=max``). The rule is the same as with one receiver."""


class MinMulticastFlowControl(FlowControl):
    """Flow control by the slowest receiver, of all receivers (``fc=min``) or of those with a tag (``fc=tagged``).

    If ``group_tag`` is None, every receiver counts. The publication is connected while at least ``group_min_size`` receivers
    count; below that, the limit doesn't move. A receiver stops counting after ``receiver_timeout_ns`` of silence.
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
        super().__init__(window_multiple)
        self.deadline_ns = NEVER_NS
        self._is_elicited = False
        self._guard_until_ns = NEVER_NS

    def prepare(self, path: SendPath) -> None:
        super().prepare(path)
        self._set_group(path)

    def on_receiver(self, path: SendPath, status: StatusMessage, edge: int, now_ns: int) -> bool:
        """Count a receiver of the group, unless it is so far behind that it would stall the others."""
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
        """Cap the limit until the joining receiver reports, so that the stream doesn't get too far ahead of it."""
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


@frozen
class FlowControlDefaults:
    """The defaults for what a channel's ``fc`` leaves out. The reference's default for ``group_tag`` is -1."""

    strategy: FlowControlStrategy = FlowControlStrategy.MAX
    unicast: FlowControlStrategy = FlowControlStrategy.MAX
    group_tag: int = -1
    group_min_size: int = 0
    receiver_timeout_ns: int = RECEIVER_TIMEOUT_NS
    unicast_window_multiple: int | None = None
    group_window_multiple: int | None = None


def choose_flow_control(params: FlowControlParams | None, *, group: bool, defaults: FlowControlDefaults) -> FlowControl:
    """Return the flow control of a channel.

    A channel that can have several receivers (``group``) uses its ``fc`` parameter, if it has one. Otherwise the defaults decide.
    """
    if not group and defaults.unicast is FlowControlStrategy.MAX:
        return UnicastFlowControl(defaults.unicast_window_multiple)
    if not group or params is None:
        params = FlowControlParams(defaults.strategy if group else defaults.unicast)
    multiple = params.retransmit_window_multiple
    if multiple is None:
        multiple = defaults.group_window_multiple if group else defaults.unicast_window_multiple
    if params.strategy is FlowControlStrategy.MAX:
        return MaxMulticastFlowControl(multiple)
    tag, size, timeout_ns = params.group_tag, params.group_min_size, params.receiver_timeout_ns
    if params.strategy is not FlowControlStrategy.TAGGED:
        tag = None
    elif tag is None:
        tag = defaults.group_tag
    return MinMulticastFlowControl(
        group_tag=tag,
        group_min_size=defaults.group_min_size if size is None else size,
        receiver_timeout_ns=defaults.receiver_timeout_ns if timeout_ns is None else timeout_ns,
        window_multiple=multiple,
    )
