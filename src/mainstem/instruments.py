"""A hook that lets a trace, a capture recorder or the simulator observe a protocol engine.

An engine holds one ``Instrument`` and calls it; ``NULL_INSTRUMENT`` does nothing. Lifecycle events go to ``logging`` instead.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["NULL_INSTRUMENT", "Instrument", "NullInstrument"]


class Instrument(Protocol):
    """The events that a protocol engine reports.

    The engine calls each method on the thread that did the work. Methods must return at once.

    Example:
        >>> class Counting(NullInstrument):
        ...     frames = 0
        ...
        ...     def frame_in(self, source, frame, now_ns):
        ...         self.frames += 1
    """

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None:
        """Report a frame that arrived.

        Args:
            source: The peer's name or address.
            frame: The frame's bytes.
            now_ns: The monotonic time, in nanoseconds.
        """
        ...

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None:
        """Report a frame that is about to be sent.

        Args:
            destination: The peer's name or address.
            frame: The frame's bytes.
            now_ns: The monotonic time, in nanoseconds.
        """
        ...

    def command(self, name: str, detail: str, now_ns: int) -> None:
        """Report a command that a client sent, or a response from the driver.

        Args:
            name: The command's or response's name.
            detail: Its content as text.
            now_ns: The monotonic time, in nanoseconds.
        """
        ...

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None:
        """Report that a state machine moved from one state to another.

        Args:
            subject: What the state machine belongs to, such as ``stream 3``.
            old: The previous state.
            new: The new state.
            now_ns: The monotonic time, in nanoseconds.
        """
        ...


class NullInstrument(Instrument):
    """An instrument that observes nothing: the default, and a base class for instruments that observe only some events."""

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None: ...

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None: ...

    def command(self, name: str, detail: str, now_ns: int) -> None: ...

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None: ...


NULL_INSTRUMENT = NullInstrument()
