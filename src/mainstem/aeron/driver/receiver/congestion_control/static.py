"""A window that stays as it is, and what every congestion control answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mainstem.clock import NEVER_NS

if TYPE_CHECKING:
    from mainstem.aeron.protocol.frames import Rttm


class CongestionControl(Protocol):
    """``window_length`` is what the next status message offers; ``deadline_ns`` is when ``on_time`` wants to be called."""

    @property
    def window_length(self) -> int: ...

    @property
    def deadline_ns(self) -> int: ...

    def on_loss(self, now_ns: int) -> bool:
        """Something is missing: whether a status message must go at once."""
        ...

    def on_time(self, now_ns: int, *, progressed: bool) -> bool:
        """``progressed``: data came since the last call. Whether a status message must go at once."""
        ...

    def measures_at(self, now_ns: int) -> bool:
        """Whether a round trip is to be measured now."""
        ...

    def on_measurement(self, measure: Rttm, now_ns: int) -> None:
        """The answer to a measurement came back."""
        ...

    def close(self) -> None:
        """Gives back what it holds."""
        ...


class StaticWindow:
    """The default: min(receiver window, half a term)."""

    deadline_ns = NEVER_NS

    def __init__(self, window_length: int) -> None:
        self.window_length = window_length

    def on_loss(self, now_ns: int) -> bool:  # noqa: ARG002
        return False

    def on_time(self, now_ns: int, *, progressed: bool) -> bool:  # noqa: ARG002
        return False

    def measures_at(self, now_ns: int) -> bool:  # noqa: ARG002
        return False

    def on_measurement(self, measure: Rttm, now_ns: int) -> None:
        """Nobody asked."""

    def close(self) -> None:
        """Holds nothing."""
