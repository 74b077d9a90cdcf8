"""What every flow control strategy answers. The ordinary status message never gets here: the send path handles it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mainstem._core.driver.send_path import SendPath
    from mainstem.aeron.protocol.frames import StatusMessage


class FlowControlStrategy(Protocol):
    """Decides who has a say in the sender's limit. ``edge`` is a position plus the window from it.

    ``window_multiple`` is the retransmit window's multiple that the channel asked for, None for the default.
    """

    tracks_minimum: bool
    window_multiple: int | None
    deadline_ns: int

    def prepare(self, path: SendPath) -> None:
        """Sets the path up for this strategy, once, before it is driven."""
        ...

    def on_receiver(self, path: SendPath, status: StatusMessage, edge: int, now_ns: int) -> bool:
        """A receiver that has no say yet reported: whether it has one from now on."""
        ...

    def on_change(self, path: SendPath, now_ns: int) -> None:
        """The path's receivers have changed."""
        ...

    def on_elicited(self, path: SendPath, status: StatusMessage, now_ns: int) -> None:
        """A receiver asked for a SETUP."""
        ...

    def on_setup_sent(self, path: SendPath, now_ns: int) -> None:
        """A SETUP has left."""
        ...

    def on_time(self, path: SendPath, now_ns: int) -> None:
        """The time ``deadline_ns`` has come."""
        ...

    def group_size(self, path: SendPath) -> int:
        """How many receivers have a say."""
        ...
