"""Two programs for ``test_flipped_lengths.py``: one keeps changing the frames of a file while the other reads them.

Usage: ``python -m tests.unit._core.flipping flip PATH`` and ``... read PATH KIND SECONDS``.
"""

from __future__ import annotations

import itertools
import random
import struct
import sys
import time
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.many_recordings import make_recordings
from tests.unit._core.logs import COMPILED, POSITION, Core, Log, T

from mainstem import open_recordings
from mainstem._core.layout import COLUMN_ALL, COLUMN_PAYLOAD, COLUMN_POSITION
from mainstem._core.log.columns import Columns, Fragments
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.errors import RecordingError
from mainstem.recording import batches
from mainstem.recording.catalog import Catalog, RecordingDescriptor
from mainstem.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME = 96
COUNT = 64
# Lengths that lead to another frame, out of the term, or nowhere; flags of whole messages and of fragments; data and padding.
LENGTHS = [struct.pack("<i", length) for length in (FRAME, 33, 0, -1, 3 * FRAME, 32 * FRAME, T - 32, 1 << 30)]
FLAGS = [b"\xc0", b"\x80", b"\x40", b"\x00"]
TYPES = [b"\x01\x00", b"\x00\x00"]


class MappedCore(Core):
    """The compiled modules over a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(COMPILED.name)
        self._path = path

    def memory(self, length: int) -> Any:
        if length < T:  # counters
            return super().memory(length)
        if not self._path.exists():
            self._path.write_bytes(bytes(length))
        with self._path.open("r+b") as file:
            return AtomicBuffer(mmap(file.fileno(), length))


def write_frames(path: Path) -> None:
    """Write a log whose first term is full of frames."""
    log = Log(MappedCore(path), initial=0)
    for at in range(0, COUNT * FRAME, FRAME):
        log.memory.put_bytes(at, struct.pack("<iBBHiiiiq", FRAME, 0, 0xC0, 1, at, -7, 1001, 0, 0))


def write_recording(path: Path) -> None:
    """Write a recording whose messages are as long as the frames of a log."""
    make_recordings(path, 1, messages=COUNT, length=FRAME - 32)


def flip(path: str) -> None:
    """Change lengths, flags and types at random until the process is killed."""
    choose = random.Random(1)
    with open(path, "r+b") as file, mmap(file.fileno(), 0) as memory:
        while True:
            at = choose.randrange(COUNT) * FRAME
            for length in choose.choices(LENGTHS, weights=[8, 1, 1, 1, 4, 4, 2, 1], k=16):
                memory[at : at + 4] = length
                memory[at + 5 : at + 6] = choose.choice(FLAGS)
                memory[at + 6 : at + 8] = choose.choice(TYPES)
            memory[at : at + 8] = LENGTHS[0] + b"\0\xc0\x01\0"


def read(path: str, kind: str, seconds: float) -> None:
    """Read for ``seconds``. Each read succeeds or raises ValueError or RecordingError; nothing else can happen."""
    step, check = READERS[kind](Path(path))
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        try:
            step()
            count += 1
        except (ValueError, RecordingError):
            pass
    check()
    print(count)


def image_reader(
    call: Callable[[Any, Any], object],
) -> Callable[[Path], tuple[Callable[[], object], Callable[[], None]]]:
    def make(path: Path) -> tuple[Callable[[], object], Callable[[], None]]:
        log = Log(MappedCore(path), initial=0)
        image = COMPILED.read.ImageReader(log.memory, log.counters, POSITION)

        def step() -> None:
            log.counters.put_i64(POSITION * 128, 0)
            call(image, log.core)

        return step, lambda: None

    return make


def column_reader(path: Path) -> tuple[Callable[[], object], Callable[[], None]]:
    memory = MappedCore(path).memory(path.stat().st_size)
    choices = (COLUMN_ALL, COLUMN_PAYLOAD, COLUMN_POSITION | COLUMN_PAYLOAD)
    fragments = Fragments()

    def step() -> None:
        for mask in choices:
            for add in ("frames", "messages"):
                columns = Columns(mask, 1, 64)
                if add == "frames":
                    columns.add_frames(memory, 0, T, 0, -1, True)
                else:
                    columns.add_messages(memory, 0, T, 0, fragments)
                taken = columns.take()
                offsets = memoryview(taken["payload_offsets"]).cast("i")
                assert offsets[-1] == len(taken["payload"])
                assert all(a <= b for a, b in itertools.pairwise(offsets))

    return step, lambda: None


def recorder(path: Path) -> tuple[Callable[[], object], Callable[[], None]]:
    memory = MappedCore(path).memory(path.stat().st_size)
    directory = path.parent / "recordings"
    directory.mkdir()
    catalog = Catalog(directory)
    descriptor = RecordingDescriptor(
        recording_id=-1, start_timestamp=0, segment_file_length=1 << 30, term_buffer_length=T, initial_term_id=0,
        session_id=-7, stream_id=1001, stripped_channel="aeron:ipc", original_channel="aeron:ipc",
    )  # fmt: skip
    writer = RecordingWriter(directory, catalog.add(descriptor), 0)
    frames = memory.view(0, COUNT * FRAME)

    def check() -> None:
        writer.close()
        catalog.close()
        with open_recordings(directory) as recordings:
            (recording,) = recordings
            assert recording.end_position() == writer.position
            # The recorder writes from the log, so a length that changes meanwhile can damage the recording of that publisher.
            # Readers must find the damage and not read beyond the file.
            for columns, rows in batches(recording, 0, writer.position, strict=False):
                offsets = memoryview(columns["payload_offsets"]).cast("i")
                assert offsets[rows] == len(columns["payload"])

    return lambda: writer.write(frames, 1), check


def replay(path: Path) -> tuple[Callable[[], object], Callable[[], None]]:
    recordings = open_recordings(path.parent)
    (recording,) = recordings

    def step() -> None:
        for columns, rows in batches(recording, 0, recording.end_position(), strict=False):
            offsets = memoryview(columns["payload_offsets"]).cast("i")
            assert offsets[rows] == len(columns["payload"])

    return step, recordings.close


READERS: dict[str, Callable[[Path], tuple[Callable[[], object], Callable[[], None]]]] = {
    "columns": column_reader,
    "recorder": recorder,
    "replay": replay,
    "poll": image_reader(lambda image, _: image.poll(bytes, 100)),
    "assembler": image_reader(lambda image, core: image.poll(core.assemble.FragmentAssembler(bytes), 100)),
    "controlled": image_reader(
        lambda image, core: image.controlled_poll(
            core.assemble.FragmentAssembler(lambda message: [None, 1, 2, 3][len(bytes(message)) % 4]), 100
        )
    ),
    "messages": image_reader(lambda image, _: image.poll_messages(bytes, 100)),
    "bytes": image_reader(lambda image, _: image.poll_bytes(100)),
    "metadata": image_reader(lambda image, _: image.poll_with_metadata(100)),
    "block": image_reader(lambda image, _: image.block_poll(bytes, T)),
    "scan": image_reader(
        lambda image, core: image.scan(core.memory(64 * 8), core.memory(64 * 4)),
    ),
}


if __name__ == "__main__":
    if sys.argv[1] == "flip":
        flip(sys.argv[2])
    else:
        read(sys.argv[2], sys.argv[3], float(sys.argv[4]))
