"""What to select from a capture, and the parts of it that tasks read independently (see ``capture.reading``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mainstem._core.capture import layout as layout
from mainstem.capture.chunks import Problem
from mainstem.capture.formats import Format, Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mainstem.capture.chunks import Chunk, FrameIndex

ROWS = 8192  # rows per batch: enough to spread a batch's fixed cost, few enough that its columns stay in the cache
PART_BYTES = 32 << 20  # much smaller parts take longer to start than to read
UNCUT = 1 << 62  # one task reads a whole compressed file, since it can be read only from its beginning


@dataclass(frozen=True, kw_only=True)
class FrameSelection:
    """The columns of the rows, and the ports of each protocol.

    ``aeron_ports`` are UDP ports that carry Aeron; anything but a valid frame on them is a problem. None means every port on which
    a whole datagram is valid Aeron; empty means none. bymux and Jmux cannot be recognized, so their TCP ports must be named.
    ``count_skipped`` adds last rows (PASSED_OVER) with the number of packets without a row.
    """

    names: tuple[str, ...]
    aeron_ports: tuple[int, ...] | None = None
    bymux_ports: tuple[int, ...] = ()
    jmux_ports: tuple[int, ...] = ()
    rows: int = ROWS
    count_skipped: bool = False

    @property
    def reads_all(self) -> bool:
        """Whether packets outside the named TCP ports are read."""
        return self.aeron_ports != () or self.count_skipped

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        return (*self.bymux_ports, *self.jmux_ports)


@dataclass(frozen=True)
class ChunkRange:
    """Whole records in ``[offset, end)``, with ``packet`` packets before them, and the section at their beginning.

    Without a section, the range continues the previous one.
    """

    offset: int
    end: int
    packet: int
    section: Section | None


@dataclass(frozen=True, kw_only=True)
class CapturePartition:
    """One task's share of one file. ``plain``: decode complete datagrams; the masks select flows by bucket.

    Ranges before ``begin`` are read only for the state of their flows; their rows are discarded. ``final``: no data will follow.
    """

    path: str
    format: Format
    runs: tuple[ChunkRange, ...]
    plain: bool = True
    tcp: int = 0
    fragments: int = 0
    problems: tuple[Problem, ...] = ()
    begin: int = 0
    final: bool = True


def plan_new(
    path: str, index: FrameIndex, selection: FrameSelection, begin: int, end: int, *, part_bytes: int = PART_BYTES
) -> list[CapturePartition]:
    """Return parts with the rows of ``[begin, end)`` of a growing file; both must be ends of records, as ``index.end`` is.

    Flows are read again from the beginning of the file, to rebuild their state.
    """
    if index.format is None or begin >= end:
        return []
    if index.format.packed:
        part_bytes = UNCUT
    before = [chunk for chunk in index.chunks if chunk.offset < end]
    chunks = [chunk for chunk in before if chunk.end > begin]
    parts = []
    if selection.reads_all or index.format.name == "aqueduct":
        for group in _groups(chunks, part_bytes):
            runs = _clipped(_runs(group, index), begin, end)
            parts.append(CapturePartition(path=path, format=index.format, runs=runs, begin=begin, final=False))
    for part in _flow_parts(path, index, selection, before, part_bytes, begin=begin):
        runs = _clipped(part.runs, begin, end)
        if any(run.end > begin for run in runs):
            parts.append(replace(part, runs=runs, final=False))
    problems = tuple(problem for problem in index.problems if begin <= problem.offset < end)
    if problems and not parts:
        parts = [_problems_only(path, index)]
    if parts:
        parts[0] = replace(parts[0], problems=problems)
    return parts


def _clipped(runs: Sequence[ChunkRange], begin: int, end: int) -> tuple[ChunkRange, ...]:
    """Return the ranges up to ``end``; the one that contains ``begin`` is split there, so that its first part can be skipped."""
    out: list[ChunkRange] = []
    for run in runs:
        stop = min(run.end, end)
        if run.offset < begin < stop:
            out += [replace(run, end=begin), ChunkRange(begin, stop, 0, None)]
        elif run.offset < stop:
            out.append(replace(run, end=stop))
    return tuple(out)


def plan(
    path: str, index: FrameIndex, selection: FrameSelection, *, part_bytes: int = PART_BYTES, min_parts: int = 1
) -> list[CapturePartition]:
    """Return parts that together hold each row of a file once. The first has the problems of the file itself."""
    if index.format is None:
        return [_problems_only(path, index)]
    chunks = index.chunks
    if index.format.packed:
        part_bytes, min_parts = UNCUT, 1
    total = sum(chunk.end - chunk.offset for chunk in chunks)
    size = max(min(part_bytes, -(-total // max(min_parts, 1))), 1)
    parts = []
    if selection.reads_all or index.format.name == "aqueduct":
        parts = [
            CapturePartition(path=path, format=index.format, runs=_runs(group, index))
            for group in _groups(chunks, size)
        ]
    parts += _flow_parts(path, index, selection, chunks, size)
    if len(parts) == 2 and parts[0].plain and parts[1].fragments | parts[1].tcp:
        # A small file: one task does both.
        parts = [replace(parts[1], runs=parts[0].runs, plain=True)]
    if not parts:
        parts = [_problems_only(path, index)]
    parts[0] = replace(parts[0], problems=tuple(index.all_problems))
    return parts


def unreadable(path: str, why: str) -> CapturePartition:
    """Return the part for a file that cannot be opened: one problem."""
    problem = Problem(layout.PROBLEM_UNREADABLE_FILE, 0, 0, why)
    return CapturePartition(path=path, format=Format(False, Section(False)), runs=(), plain=False, problems=(problem,))


def _problems_only(path: str, index: FrameIndex) -> CapturePartition:
    empty = index.format or Format(False, Section(False))
    return CapturePartition(path=path, format=empty, runs=(), plain=False, problems=tuple(index.all_problems))


def _groups(chunks: Sequence[Chunk], size: int) -> Iterator[list[Chunk]]:
    group: list[Chunk] = []
    held = 0
    for chunk in chunks:
        group.append(chunk)
        held += chunk.end - chunk.offset
        if held >= size:
            yield group
            group, held = [], 0
    if group:
        yield group


def _runs(chunks: Sequence[Chunk], index: FrameIndex) -> tuple[ChunkRange, ...]:
    """Join adjacent chunks, so that a walk can keep its state across them."""
    runs: list[ChunkRange] = []
    for chunk in chunks:
        if runs and runs[-1].end == chunk.offset:
            runs[-1] = replace(runs[-1], end=chunk.end)
        else:
            runs.append(ChunkRange(chunk.offset, chunk.end, chunk.packet, index.sections[chunk.section]))
    return tuple(runs)


def _flow_parts(
    path: str, index: FrameIndex, selection: FrameSelection, chunks: Sequence[Chunk], size: int, begin: int = 0
) -> list[CapturePartition]:
    """Return the parts for flows: each has some of the buckets, and the chunks with packets of those."""
    assert index.format is not None
    follow_tcp, follow_fragments = bool(selection.tcp_ports), selection.aeron_ports != ()
    tcp = fragments = held = 0
    for chunk in chunks:
        mine = (chunk.tcp if follow_tcp else 0) | (chunk.fragments if follow_fragments else 0)
        tcp |= chunk.tcp if follow_tcp else 0
        fragments |= chunk.fragments if follow_fragments else 0
        held += chunk.end - chunk.offset if mine else 0
    buckets = [bit for bit in range(layout.FLOW_BUCKETS) if (tcp | fragments) >> bit & 1]
    count = min(max(-(-held // size), 1), len(buckets))
    parts = []
    for k in range(count):
        mask = sum(1 << bit for bit in buckets[k::count])
        tcp_mask, fragment_mask = tcp & mask, fragments & mask
        owned = [chunk for chunk in chunks if chunk.tcp & tcp_mask or chunk.fragments & fragment_mask]
        parts.append(
            CapturePartition(
                path=path, format=index.format, runs=_runs(owned, index), plain=False,
                tcp=tcp_mask, fragments=fragment_mask, begin=begin,
            )
        )  # fmt: skip
    return parts
