"""Reads parts of captures as batches of rows.

Theory of operation
-------------------

A file is read in two passes. ``capture.index`` walks its records once and stores, for each ``Chunk`` of about 1 MiB, where it
begins, how many packets precede it, and the reading state there (byte order, interfaces). ``capture.planning`` groups chunks
into parts, and ``read`` decodes one part. Parts share nothing: they may be read in any order and process, and reading one again
gives the same rows.

How a file can be split depends on the earlier packets that are needed to decode a packet:

* A complete datagram needs none. Its rows come from the one *plain* part whose ranges contain its record.
* A TCP segment or an IP fragment needs the earlier packets of its flow. The addresses and ports of a flow (for a fragment:
  addresses and identification) determine one of 64 buckets, the same for both directions. The index has a bit per chunk for each
  bucket with packets there. A *flow* part owns some of the buckets and reads all chunks with packets of those, from the
  beginning of the file to its end. So reassembly is exact, and flows are read in parallel.
* The ports of a fragmented TCP segment are known only when it is complete. Each flow part reassembles all fragments of TCP, and
  keeps the segments in its buckets.

Within a part, ``CaptureDecoder`` steps through the records of each 4 MiB read without the GIL and writes rows. It stops when the
rows are full, so that the reader can yield a batch and continue with the same packet. It also stops at a packet that depends on
earlier ones, which ``Flows`` handles in Python before the decoder continues. One thread does all of this.

Invariants:

* Each row of a file is in exactly one part; the problems of the file itself are in the first part only.
* Rows of one part are in the order of the packets that completed them. Rows of different parts are in no order.
* Ranges of a part ascend, do not overlap, and begin and end between two records. A range without a section continues the
  previous one; a range after skipped chunks has its own section and packet number.
* In a stream (``plan_new``), ranges that end at or before ``begin`` are decoded only for the state of their flows, and their
  rows are discarded; the range that contains ``begin`` is split there. A part that is not ``final`` leaves open gaps open.
* Memory is bounded by one read, one batch and the limits of ``capture.tcp_streams`` and ``capture.ip_fragments``.
* A file's contents never raise: if a file changed after it was indexed, its part ends with a problem.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem._core.capture import layout as layout
from mainstem._core.capture.aeron_frames import CaptureDecoder
from mainstem._core.capture.frame_rows import FrameRows
from mainstem.capture.batches import column_mask, take_batch
from mainstem.capture.connections import Flows
from mainstem.capture.planning import plan
from mainstem.capture.problem_text import PASSED
from mainstem.capture.traces import read_trace
from mainstem.capture.unpacking import open_capture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from mainstem.capture.chunks import FrameIndex
    from mainstem.capture.planning import CapturePartition, ChunkRange, FrameSelection

READ_BYTES = 4 << 20  # read at a time; a part holds no more of the file than this in memory


def read(part: CapturePartition, selection: FrameSelection) -> Iterator[pa.RecordBatch]:
    """Read the rows of a part, in order of packets. Never raises because of the file's contents.

    ``count_skipped`` counts this part; the counts of all parts add up to the file's.
    """
    reader = _Reader(part, selection)
    yield from reader.batches()
    yield from _passed_over(part.path, selection, [reader.passed])


def frames(path: str, selection: FrameSelection, index: FrameIndex) -> Iterator[pa.RecordBatch]:
    passed = []
    for part in plan(path, index, selection):
        reader = _Reader(part, selection)
        yield from reader.batches()
        passed.append(reader.passed)
        del reader  # and its buffers, before the next one's
    yield from _passed_over(path, selection, passed)


def _passed_over(
    path: str, selection: FrameSelection, passed: Sequence[list[tuple[int, int]]]
) -> Iterator[pa.RecordBatch]:
    """Yield, for each reason, the number of packets without a row, under the number of the last of them.

    A packet is skipped once, so these rows have distinct numbers. In a stream a count can be negative: a fragment that an
    earlier micro-batch counted is now part of a LOST_FRAGMENT row.
    """
    if not selection.count_skipped:
        return
    rows = FrameRows(column_mask(selection.names), layout.PASSED_REASONS)
    kind = layout.KIND_PROBLEM + layout.PROBLEM_PASSED_OVER
    for reason, parts in zip(PASSED, zip(*passed, strict=True), strict=True):
        if count := sum(each for each, _ in parts):
            rows.begin(max(last for _, last in parts), 0, False, 0)
            rows.row(layout.PROTOCOL_PROBLEM, kind, {layout.ROW_LENGTH: count}, text=reason.encode())
    if rows.rows:
        yield take_batch(rows, selection.names, path)


@dataclass
class _Reader:
    part: CapturePartition
    selection: FrameSelection
    rows: FrameRows = field(init=False)
    silent: bool = False
    passed: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)] * layout.PASSED_REASONS)

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

    def _decoder(self, run: ChunkRange) -> CaptureDecoder:
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

    def _run(self, file: Any, run: ChunkRange, decoder: CaptureDecoder, flows: Flows) -> Iterator[pa.RecordBatch]:
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
                # The record is longer than one read.
                data = bytearray(min(max(decoder.walk.needed, 2 * len(data)), run.end - offset))
                if len(data) <= limit:
                    return
            offset += at
