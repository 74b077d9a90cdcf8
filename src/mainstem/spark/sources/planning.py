"""What the driver of a Spark query plans: which recordings there are, how far each can be read, and into what ranges it is cut.

Theory of operation. A position in a stream is an offset in Spark, so planning is arithmetic on positions: for each recording
a begin and a stop, both at boundaries between messages. Three places do it:

- ``starting``, ``ending`` and ``latest`` resolve the options (earliest, latest, a position, a time) against the recordings as
  they are now. They run on the driver, once for a batch, and for a stream when it begins or polls.
- ``advance`` makes the end offset of the next micro-batch from its start and the targets. Limits on bytes and rows are
  shared in proportion to what each recording has waiting, so that none starves. Only here is a boundary chosen; it
  becomes the offset that Spark writes to its log before anything is read.
- ``ranges`` cuts ``[start, end)`` of each recording into partitions. For a restarted query Spark calls it with offsets of its
  log, without ``advance``: so it must not depend on what is planned now, only on the offsets and on the segments, which never
  change below the end. Equal offsets therefore mean equal rows: that is the whole of exactly-once on the reading side.

Who runs what. The driver holds a ``Planner`` with an open reader for each recording, which is never pickled; tasks get a
``RecordingRange``, which names directory, descriptor and positions, and open a reader of their own. Spark calls the planner of one
query from one thread at a time. The recorder may be writing the same segments in another process: a reader sees whole frames
up to ``end_position``, which only grows, and the catalog is read anew at each call, so that new recordings appear.

Invariants:

- A range begins and ends between two messages; a message is never split between micro-batches or tasks.
- ``within`` narrows a range and never widens it, and an empty range stays empty (begin = stop). The offset nevertheless moves
  past what the options leave out, or the next micro-batch would begin there again.
- An offset is of recordings, not of ids: ``resumed`` compares identity and end before anything is planned from one.
- The end offset is never before the start offset, and contains every recording that the start contained.
- Where positions are lost (purged segments, a damaged frame, a recording that is gone) the query fails, or with
  ``failOnDataLoss=false`` logs and goes on behind the loss: it never skips without either.

The index (``mainstem.recording.positions``) makes boundaries and times cheap to find; without one the same functions walk the
frames from the start of a term, which is correct and slower.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from mainstem.errors import RecordingError
from mainstem.recording import RecordingReader, faults, read_catalog
from mainstem.recording.positions import positions_file
from mainstem.spark.sources.batches import RecordingRange
from mainstem.spark.sources.offsets import Offset, Positions
from mainstem.spark.sources.options import SHARED_BYTES, require_times, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.spark.sources.options import RecordingOptions
    from mainstem.spark.sources.schema import Names

log = logging.getLogger(__name__)


def tasks_for(total: int, partition_bytes: int, cores: int) -> int:
    """How many tasks read ``total`` bytes on so many cores, ``partition_bytes`` each at most.

    No core is idle for long: where there is less than that for each they share it, in pieces of ``SHARED_BYTES`` or more; where
    there is more, each gets as many tasks as the others.
    """
    by_size = -(-total // partition_bytes)
    if by_size < cores:
        return max(by_size, min(cores, total // SHARED_BYTES))
    return -(-by_size // cores) * cores


class Planner:
    """Keeps a reader for each recording; lives on the driver, is never pickled."""

    def __init__(self, options: RecordingOptions, names: Names) -> None:
        self._options = options
        self._names = names
        self._readers: dict[str, RecordingReader] = {}

    def readers(self) -> dict[str, RecordingReader]:
        """A reader for each recording asked for, new ones included, by id."""
        for descriptor in read_catalog(self._options.path):
            if self._options.takes(descriptor):
                key = str(descriptor.recording_id)
                reader = self._readers.get(key)
                # A recording is in the catalog a moment before it has its index.
                is_current = reader is not None and (
                    reader.positions is not None
                    or not positions_file(self._options.path, descriptor.recording_id).exists()
                )
                if reader is not None and is_current and reader.descriptor.identity == descriptor.identity:
                    reader.update(descriptor)
                    continue
                if reader is not None:
                    reader.close()
                self._readers[key] = RecordingReader(self._options.path, descriptor)
        return self._readers

    def close(self) -> None:
        """Closes every reader."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def offset(self, positions: Positions, before: Offset | None = None) -> Offset:
        """An offset of these positions, with the identity of each recording: of one that is gone, the one from ``before``."""
        identities = dict(before.identities) if before is not None else {}
        identities |= {key: reader.descriptor.identity for key, reader in self._readers.items()}
        return Offset(positions, {key: identities[key] for key in positions if key in identities})

    def resumed(self, offset: Offset) -> Positions:
        """The positions of an offset that can be gone on from.

        A recording that is another one than that of the offset, or ends before it, raises RecordingError, or with
        ``failOnDataLoss=false`` is left out, so that it is read from its start.
        """
        readers, positions = self.readers(), {}
        for key, position in offset.positions.items():
            if key in readers and (change := self._change(readers[key], position, offset.identities.get(key))):
                self._lost(f"recording {key} of {self._options.path} {change}")
                continue
            positions[key] = position
        return positions

    def _change(self, reader: RecordingReader, position: int, identity: str | None) -> str:
        now = reader.descriptor.identity
        if identity is not None and identity != now:
            return f"is not the one of the checkpoint: start, session and channel were {identity} and are {now}"
        end = reader.end_position()
        return (
            f"ends at {end}, before position {position} of the checkpoint: it was truncated" if end < position else ""
        )

    def starting(self) -> Positions:
        """Where the options begin, for the recordings that there are now."""
        where = self._options.starting
        return {k: resolve(where, r, "earliest", name="startingPositions") for k, r in self.readers().items()}

    def ending(self) -> Positions:
        """Where the options end."""
        where = self._options.ending
        return {k: resolve(where, r, "latest", name="endingPositions") for k, r in self.readers().items()}

    def latest(self) -> Positions:
        """How far each recording can be read now."""
        return {key: reader.end_position() for key, reader in self.readers().items()}

    def targets(self) -> Positions:
        """How far a query should come now: as far as there is, and not past where the options end."""
        return self.ending() if self._options.ending != "latest" else self.latest()

    def begin_of(self, key: str, start: Mapping[str, int]) -> int:
        """Where a range starts: a recording that was not there before is read from its beginning."""
        return start.get(key, self._readers[key].descriptor.start_position)

    def within(self, reader: RecordingReader, begin: int, stop: int) -> tuple[int, int]:
        """``[begin, stop)`` without what the options on times and positions leave out; empty when nothing is left."""
        if stop <= begin:
            return begin, begin
        span, rows = self._options.span, self._options.rows
        if span.has_times:
            if self._options.skips_unknown_times and not reader.has_times:
                return begin, begin
            require_times(reader, "toTime" if span.from_time_ns is None else "fromTime")
            begin, stop = span.of_times(reader, begin, stop)
        if rows == "problems":
            return begin, stop
        return span.of_positions(reader, begin, stop, frames=rows == "frames")

    def advance(self, start: Positions, targets: Positions, *, limited: bool) -> Positions:
        """The offsets of the next micro-batch: at ends of messages, and within the limits when ``limited``.

        A limit is shared by what each recording has waiting.
        """
        readers = self.readers()
        spans = {
            key: self.within(readers[key], self.begin_of(key, start), targets[key]) for key in targets if key in readers
        }
        begins = {key: begin for key, (begin, _) in spans.items()}
        targets = {key: stop for key, (_, stop) in spans.items()}
        waiting = {key: max(targets[key] - begin, 0) for key, begin in begins.items()}
        total = sum(waiting.values())
        end: Positions = dict(start)
        for key, begin in begins.items():
            if waiting[key] == 0:
                end[key] = begin
                continue
            share = waiting[key] / total
            max_bytes = self._options.max_bytes if limited else None
            max_rows = self._options.max_rows if limited else None
            end[key] = self._advance_one(
                readers[key],
                begin,
                targets[key],
                None if max_bytes is None else max(int(max_bytes * share), 1),
                None if max_rows is None else max(int(max_rows * share), 1),
            )
        return end

    def _advance_one(
        self, reader: RecordingReader, begin: int, target: int, max_bytes: int | None, max_rows: int | None
    ) -> int:
        first = reader.start_position
        if begin < first:
            self._lost(f"recording {reader.descriptor.recording_id}: positions {begin} to {first} were purged")
            begin = first
        try:
            end = reader.advance(begin, target, max_bytes=max_bytes, max_messages=max_rows)
        except RecordingError:
            end = begin
        if end > begin or not reader.is_sure_of_its_end:
            return end
        fault = next(faults(reader, begin, target, checksums=False), None)
        if fault is None:
            return end
        # Without this the query would stay here for ever, without an error.
        self._lost(fault.text)
        return reader.boundary_after(fault.position, target)

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise RecordingError(f"{what}; set failOnDataLoss to false to read on")
        log.warning("%s; reading goes on", what)

    def ranges(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[RecordingRange]:
        """``[start, end)`` of every recording, cut into partitions."""
        readers = self.readers()
        for key in end:
            if key not in readers:
                self._lost(f"recording {key} is gone from {self._options.path}")
        spans = []
        for key, stop in end.items():
            if key not in readers:
                continue
            begin, stop = self.within(readers[key], self.begin_of(key, start), stop)
            first = readers[key].start_position
            if begin < first and begin < stop:
                self._lost(f"recording {key}: positions {begin} to {first} were purged")
                begin = first
            if begin < stop:
                spans.append((readers[key], begin, stop))
        total = sum(stop - begin for _, begin, stop in spans)
        tasks = max(self._options.min_partitions, tasks_for(total, self._options.partition_bytes, os.cpu_count() or 1))
        parts: list[RecordingRange] = []
        for reader, begin, stop in spans:
            share = -(-tasks * (stop - begin) // total)
            parts += (self._range(reader, a, b) for a, b in reader.cuts(begin, stop, share))
        return parts

    def _range(self, reader: RecordingReader, start: int, end: int) -> RecordingRange:
        return RecordingRange(
            str(self._options.path),
            reader.descriptor,
            start,
            end,
            self._names,
            self._options.rows,
            self._options.rows_per_batch,
            self._options.fail_on_data_loss,
            self._options.verify,
            self._options.timestamp_from,
        )
