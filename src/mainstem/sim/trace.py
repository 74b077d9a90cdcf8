"""The last things that happened, kept for the moment when something goes wrong."""

from __future__ import annotations

from collections import deque

TRACE_LENGTH = 400  # lines: enough to see a stall's cause, short enough to read


class Trace:
    """An ``Instrument`` that remembers the newest events as lines of text."""

    def __init__(self, *, length: int = TRACE_LENGTH) -> None:
        self._events: deque[tuple[int, str, bytes]] = deque(maxlen=length)
        self.total = 0

    def note(self, text: str, now_ns: int, frame: bytes = b"") -> None:
        """Adds one line, stamped with simulated time, and with the head of ``frame`` where there is one."""
        self.total += 1
        # Written out only when somebody reads it: most runs go well.
        self._events.append((now_ns, text, frame))

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None:
        self.note(f"in from {source}: ", now_ns, frame)

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None:
        self.note(f"out to {destination}: ", now_ns, frame)

    def command(self, name: str, detail: str, now_ns: int) -> None:
        self.note(f"{name} {detail}", now_ns)

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None:
        self.note(f"{subject}: {old} -> {new}", now_ns)

    def __str__(self) -> str:
        return "\n".join(f"{now_ns / 1e9:.6f} {text}{frame[:40].hex()}" for now_ns, text, frame in self._events)
