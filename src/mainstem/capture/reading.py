"""Captures as rows: which rows are selected, the parts of a file that tasks read independently, and the batches of a part.

Theory of operation
-------------------

A file is read in two passes. ``capture.index`` goes over its records once and stores, for each stretch of about 1 MiB (a
``Chunk``), where it begins, how many packets come before it, and what holds there (byte order, interfaces). ``plan`` groups
chunks into parts, and ``read`` decodes one part. Parts share nothing: each opens the file itself, so they may be read in any
order, in any process, at the same time, and a part that is read again gives the same rows.

What can be cut where depends on the history that a packet needs:

* A datagram that came whole needs none. Its rows come from the one *plain* part whose runs contain its record, so any
  grouping of chunks is right.
* A TCP segment and an IP fragment need what came before them in their flow. The addresses and ports of a flow (of a fragment:
  addresses and identification) give one of 64 buckets, the same for both directions, and the index has for each chunk a bit
  for each bucket with packets there. A *flow* part owns some of the buckets and reads all chunks with packets of them, from
  the file's beginning to its end; packets of other buckets are stepped over. So reassembly is exact, and parallel by flow.
* The ports of a fragmented TCP segment are known only when it is whole. Each flow part reassembles all fragments of TCP, and
  keeps the whole segments that are in its buckets.

Within a part, ``CaptureDecoder`` steps through the records of a read of 4 MiB without the GIL and writes rows. It stops where
the rows are full (a batch is handed out, and it goes on with the same packet), and at a packet that needs history: ``Flows``
takes that packet, in Python, before the next is decoded. One thread does all of this.

Invariants:

* Each row of a file is in exactly one part; the problems of the file itself are in the first part only.
* Rows of one part are in the order of the packets that completed them. Rows of different parts of one file are in no order.
* Runs of a part ascend, do not overlap, and begin and end between two records. A run without a section continues the run
  before it, so that the walk's state is right; a run after a hole brings its own section and packet number.
* In a stream (``plan_new``), runs that end at or before ``begin`` are decoded for their history and their rows discarded; the
  run that contains ``begin`` is cut there. A part that is not ``final`` leaves open gaps open.
* Memory is bounded by one read, one batch and the limits of ``capture.streams`` and ``capture.fragments``.
* A file's content never raises: a file that changed after it was indexed ends its part with a problem.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mainstem._core.capture import layout as layout
from mainstem._core.capture.aeron_frames import CaptureDecoder
from mainstem._core.capture.frame_rows import FrameRows
from mainstem.capture.batches import column_mask, take_batch
from mainstem.capture.connections import Flows
from mainstem.capture.formats import Format, Section
from mainstem.capture.index import Problem
from mainstem.capture.reasons import PASSED
from mainstem.capture.traces import read_trace
from mainstem.capture.unpacking import open_capture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from mainstem.capture.index import Chunk, FrameIndex

READ_BYTES = 4 << 20  # read at a time; a part holds no more of the file than this
ROWS = 8192  # rows of a batch: enough that a batch costs little, few enough that its columns stay in the cache
PART_BYTES = 32 << 20  # much smaller parts cost more to start than to read
UNCUT = 1 << 62  # a packed file can be read only from its beginning: by one task
ALL_BUCKETS = (1 << layout.FLOW_BUCKETS) - 1


@dataclass(frozen=True, kw_only=True)
class FrameSelection:
    """The columns of the rows, and the ports of each protocol.

    ``aeron_ports``: UDP ports that carry Aeron, where what is no frame is a problem; None: every port, where each byte of a
    datagram fits Aeron's frames; empty: none. bymux and Jmux have no mark that distinguishes them from other bytes, so their
    TCP ports must be named. ``count_passed``: whether a last row, PASSED_OVER, has the number of packets without one, so that
    each packet of a capture is in a row or counted.
    """

    names: tuple[str, ...]
    aeron_ports: tuple[int, ...] | None = None
    bymux_ports: tuple[int, ...] = ()
    jmux_ports: tuple[int, ...] = ()
    rows: int = ROWS
    count_passed: bool = False

    @property
    def reads_all(self) -> bool:
        """Whether packets outside of TCP's named ports are read."""
        return self.aeron_ports != () or self.count_passed

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """Every TCP port that is followed."""
        return (*self.bymux_ports, *self.jmux_ports)


@dataclass(frozen=True)
class Run:
    """Whole records in ``[offset, end)``, with ``packet`` packets before them, and the section that holds where they begin.

    Without a section the run continues the run before it.
    """

    offset: int
    end: int
    packet: int
    section: Section | None


@dataclass(frozen=True, kw_only=True)
class Part:
    """The share of one task in one file. ``plain``: datagrams that came whole; the masks: flows, by their buckets.

    Rows of runs before ``begin`` are discarded: those runs are read for their history. ``final``: nothing will follow.
    """

    path: str
    format: Format
    runs: tuple[Run, ...]
    plain: bool = True
    tcp: int = 0
    fragments: int = 0
    problems: tuple[Problem, ...] = ()
    begin: int = 0
    final: bool = True


def plan_new(
    path: str, index: FrameIndex, selection: FrameSelection, begin: int, end: int, *, part_bytes: int = PART_BYTES
) -> list[Part]:
    """Parts that hold the rows of ``[begin, end)`` of a file that goes on: both are ends of records, as ``index.end`` is.

    What needs history is read from the beginning of the file again, for its history only.
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
            parts.append(Part(path=path, format=index.format, runs=runs, begin=begin, final=False))
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


def _clipped(runs: Sequence[Run], begin: int, end: int) -> tuple[Run, ...]:
    """Runs up to ``end``; one that has ``begin`` in it is cut there, so that its first part can be passed over."""
    out: list[Run] = []
    for run in runs:
        stop = min(run.end, end)
        if run.offset < begin < stop:
            out += [replace(run, end=begin), Run(begin, stop, 0, None)]
        elif run.offset < stop:
            out.append(replace(run, end=stop))
    return tuple(out)


def plan(
    path: str, index: FrameIndex, selection: FrameSelection, *, part_bytes: int = PART_BYTES, min_parts: int = 1
) -> list[Part]:
    """Parts that together hold each row of a file once. The problems of the file itself are in the first."""
    if index.format is None:
        return [_problems_only(path, index)]
    chunks = index.chunks
    if index.format.packed:
        part_bytes, min_parts = UNCUT, 1
    total = sum(chunk.end - chunk.offset for chunk in chunks)
    size = max(min(part_bytes, -(-total // max(min_parts, 1))), 1)
    parts = []
    if selection.reads_all or index.format.name == "aqueduct":
        parts = [Part(path=path, format=index.format, runs=_runs(group, index)) for group in _groups(chunks, size)]
    parts += _flow_parts(path, index, selection, chunks, size)
    if len(parts) == 2 and parts[0].plain and parts[1].fragments | parts[1].tcp:
        # A small file: one task does both.
        parts = [replace(parts[1], runs=parts[0].runs, plain=True)]
    if not parts:
        parts = [_problems_only(path, index)]
    parts[0] = replace(parts[0], problems=tuple(index.all_problems))
    return parts


def unreadable(path: str, why: str) -> Part:
    """Returns the part of a file that cannot be opened: one problem."""
    problem = Problem(layout.PROBLEM_UNREADABLE_FILE, 0, 0, why)
    return Part(path=path, format=Format(False, Section(False)), runs=(), plain=False, problems=(problem,))


def _problems_only(path: str, index: FrameIndex) -> Part:
    empty = index.format or Format(False, Section(False))
    return Part(path=path, format=empty, runs=(), plain=False, problems=tuple(index.all_problems))


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


def _runs(chunks: Sequence[Chunk], index: FrameIndex) -> tuple[Run, ...]:
    """Joins chunks that touch: a walk carries its state from one into the next."""
    runs: list[Run] = []
    for chunk in chunks:
        if runs and runs[-1].end == chunk.offset:
            runs[-1] = replace(runs[-1], end=chunk.end)
        else:
            runs.append(Run(chunk.offset, chunk.end, chunk.packet, index.sections[chunk.section]))
    return tuple(runs)


def _flow_parts(
    path: str, index: FrameIndex, selection: FrameSelection, chunks: Sequence[Chunk], size: int, begin: int = 0
) -> list[Part]:
    """The parts that need history: each has some of the buckets, and the chunks that have packets of them."""
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
            Part(
                path=path, format=index.format, runs=_runs(owned, index), plain=False,
                tcp=tcp_mask, fragments=fragment_mask, begin=begin,
            )
        )  # fmt: skip
    return parts


def read(part: Part, selection: FrameSelection) -> Iterator[pa.RecordBatch]:
    """Reads the rows of a part, in the order of packets. Never raises for what the file holds.

    With ``count_passed`` the row of the count is of this part: those of all parts add up to the file's.
    """
    reader = _Reader(part, selection)
    yield from reader.batches()
    yield from _passed_over(part.path, selection, [reader])


def frames(path: str, selection: FrameSelection, index: FrameIndex) -> Iterator[pa.RecordBatch]:
    """Reads all rows of a capture, part after part."""
    readers = [_Reader(part, selection) for part in plan(path, index, selection)]
    for reader in readers:
        yield from reader.batches()
    yield from _passed_over(path, selection, readers)


def _passed_over(path: str, selection: FrameSelection, readers: Sequence[_Reader]) -> Iterator[pa.RecordBatch]:
    """One row with the number of packets that had none, by reason."""
    counts = [sum(numbers) for numbers in zip(*(reader.passed for reader in readers), strict=True)]
    if not selection.count_passed or not any(counts):
        return
    rows = FrameRows(column_mask(selection.names), 1)
    reasons = ", ".join(f"{count} {PASSED[i]}" for i, count in enumerate(counts) if count)
    text = f"{sum(counts)} packets have no row: {reasons}"
    rows.begin(0, 0, False, 0)
    kind = layout.KIND_PROBLEM + layout.PROBLEM_PASSED_OVER
    rows.row(layout.PROTOCOL_PROBLEM, kind, {layout.ROW_LENGTH: sum(counts)}, text=text.encode())
    yield take_batch(rows, selection.names, path)


@dataclass
class _Reader:
    """Reads a part's runs into rows."""

    part: Part
    selection: FrameSelection
    rows: FrameRows = field(init=False)
    silent: bool = False
    passed: list[int] = field(default_factory=lambda: [0] * layout.PASSED_REASONS)

    def __post_init__(self) -> None:
        self.rows = FrameRows(column_mask(self.selection.names), self.selection.rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for problem in self.part.problems:
            self._problem(problem.kind, problem.packet, problem.text)
            if self.rows.full:
                yield from self._taken()
        if self.part.runs:
            try:
                with open_capture(self.part.path, self.part.format.packed) as file:
                    yield from self._runs(file)
            except OSError as error:
                self._problem(layout.PROBLEM_UNREADABLE_FILE, 0, f"{error.strerror or error}")
        yield from self._taken()

    def _taken(self) -> Iterator[pa.RecordBatch]:
        if self.silent:
            self.rows.take()
        elif self.rows.rows:
            yield take_batch(self.rows, self.selection.names, self.part.path)

    def _problem(self, kind: int, packet: int, text: str) -> None:
        self.rows.begin(packet, 0, False, 0)
        self.rows.row(layout.PROTOCOL_PROBLEM, layout.KIND_PROBLEM + kind, {}, text=text.encode())

    def _decoder(self, run: Run) -> CaptureDecoder:
        selection, part = self.selection, self.part
        decoder = CaptureDecoder(part.format.walk(run.section or part.format.section), self.rows)
        decoder.plain = part.plain
        decoder.follow_fragments = selection.aeron_ports != ()
        decoder.guess = selection.aeron_ports is None
        decoder.set_ports(selection.aeron_ports or (), selection.tcp_ports)
        decoder.set_buckets(part.tcp, part.fragments)
        decoder.seek(run.packet)
        return decoder

    def _runs(self, file: Any) -> Iterator[pa.RecordBatch]:
        if self.part.format.name == "aqueduct":
            yield from self._taken()
            with io.BufferedReader(file) as lines:
                yield from read_trace(self.part, self.selection, lines)
            return
        decoder: CaptureDecoder | None = None
        flows: Flows | None = None
        position = 0
        for run in self.part.runs:
            assert run.offset >= position, "runs of a part ascend and do not overlap"
            position = run.end
            self.silent = run.offset < self.part.begin
            if decoder is None:
                decoder = self._decoder(run)
                flows = Flows(
                    decoder,
                    bymux=self.selection.bymux_ports,
                    jmux=self.selection.jmux_ports,
                    tcp_buckets=self.part.tcp,
                    keep="payload" in self.selection.names,
                )
            assert flows is not None
            if run.section is not None:
                self.part.format.enter(decoder.walk, run.section)
                decoder.seek(run.packet)
            yield from self._run(file, run, decoder, flows)
            yield from self._taken()
            if self.silent:
                decoder.take_passed()
        if flows is not None and self.part.final:
            for _ in flows.finish():
                yield from self._taken()
        if decoder is not None:
            self.passed = decoder.take_passed()

    def _run(self, file: Any, run: Run, decoder: CaptureDecoder, flows: Flows) -> Iterator[pa.RecordBatch]:
        data = bytearray(min(READ_BYTES, run.end - run.offset))
        offset = run.offset
        while offset < run.end:
            file.seek(offset)
            limit = file.readinto(memoryview(data)[: run.end - offset])
            at = 0
            while True:
                stopped = decoder.run(data, at, limit)
                at = decoder.offset
                if stopped == layout.DECODE_FULL:
                    yield from self._taken()
                elif stopped == layout.DECODE_SEGMENT:
                    for _ in flows.take(data):
                        yield from self._taken()
                else:
                    break
            if stopped == layout.DECODE_CORRUPT or limit < min(len(data), run.end - offset):
                text = f"the file changed while it was read: no record at {offset + at}, where the index has one"
                if self.rows.full:
                    yield from self._taken()
                self._problem(layout.PROBLEM_CORRUPT_FILE, decoder.number, text)
                return
            if at == 0:
                # A record longer than what was read at a time.
                data = bytearray(min(max(decoder.walk.needed, 2 * len(data)), run.end - offset))
                if len(data) <= limit:
                    return
            offset += at
