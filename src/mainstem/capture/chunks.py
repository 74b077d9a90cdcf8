"""The contents of a capture's index: its chunks, and the problems of the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.capture.formats import Format, Section

# Target size of a chunk: small enough that chunks can be skipped by their buckets, large enough that 5 GiB have only 5000 of them.
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole records in ``[offset, end)``; ``packet`` packets precede them, ``section`` is an index into the sections.

    Times are those of the first and the last packet, -1 if there is none. ``tcp`` and ``fragments`` have a bit for each bucket
    of flows with packets in the chunk.
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
    """A problem at ``offset``: a code ``layout.PROBLEM_...``, the packet before it, and a text."""

    kind: int
    packet: int
    offset: int
    text: str


@dataclass
class FrameIndex:
    """The index. ``end`` is where the pass ended; ``tail`` describes the rest of the file."""

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
        """The current problems of the file, including an unfinished record at its end."""
        return [*self.problems, self.tail] if self.tail is not None else self.problems
