"""What the index of a capture holds: its stretches, and what is wrong with the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.capture.formats import Format, Section

# A stretch: small enough to be skipped for its buckets, large enough that 5 GiB have 5000 of them.
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole records in ``[offset, end)``; ``packet`` packets came before, ``section`` is an index into the sections.

    Times are of the first and the last packet by the clock, -1 if there is none. ``tcp`` and ``fragments`` have a bit for
    each bucket of flows that the stretch has packets of.
    """

    offset: int
    end: int
    packet: int
    packets: int
    first_ns: int
    last_ns: int
    tcp: int
    fragments: int
    section: int


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with the file at ``offset``: a code ``layout.PROBLEM_...``, after which packet, and in words."""

    kind: int
    packet: int
    offset: int
    text: str


@dataclass
class FrameIndex:
    """The index. ``end`` is where the pass ended; ``tail`` describes what lies between it and the end of the file."""

    size: int
    mtime_ns: int
    format: Format | None
    sections: list[Section] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    tail: Problem | None = None
    end: int = 0
    packets: int = 0
    links: list[int] = field(default_factory=list)
    prints: tuple[int, int] = (0, 0)

    @property
    def all_problems(self) -> list[Problem]:
        """Those of the file as it is now, the unfinished record at its end included."""
        return [*self.problems, self.tail] if self.tail is not None else self.problems
