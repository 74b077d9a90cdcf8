"""Directories of recordings with arbitrary damage: rows or RecordingError, in bounded time and memory.

An ordinary run tries 300 directories; set ``MAINSTEM_DAMAGED_DIRECTORIES=10000`` for more.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import struct
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record

from mainstem.errors import RecordingError
from mainstem.recording import Recorder, RecordingReader, batches, find_problems, open_recordings, read_catalog
from mainstem.recording.catalog import CATALOG_FILE
from mainstem.recording.index import index_file
from mainstem.recording.verify_recordings import find_end_problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

DIRECTORIES = int(os.environ.get("MAINSTEM_DAMAGED_DIRECTORIES", "300"))
PARTS = 4
SECONDS = 5.0  # CPU time per directory; intact ones take a few milliseconds
MEMORY_BYTES = 256 << 20
TERM = 65536
STREAM = {"session_id": 77, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}
NUMBERS = [
    0, 1, -1, 2, 31, 32, 33, 64, 1024, 4096, TERM - 32, TERM, TERM + 1, 2 * TERM, -TERM, 3 * TERM, 1 << 30, 100_000,
    (1 << 31) - 1, -(1 << 31), (1 << 31) - 32,
]  # fmt: skip
LONG_NUMBERS = [*NUMBERS, (1 << 62), (1 << 63) - 1, -(1 << 63), (1 << 63) - 32, 1_700_000_000_000, 1 << 40]
FIRST_ENTRY = 32
# Field offsets within an entry, after its header.
LONG_FIELDS = [32 + 8 * i for i in range(7)]
INT_FIELDS = [0, 4] + [32 + 56 + 4 * i for i in range(6)] + [32 + 80]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three recordings: one that was stopped, one without an index (like Aeron Archive's), and one whose recorder was killed."""
    directory = tmp_path_factory.mktemp("whole")
    rng = random.Random(1)
    recorder = Recorder(directory, segment_length=2 * TERM)
    for number in range(3):
        writer = recorder.start(**(STREAM | {"session_id": number}), join_position=TERM * number)
        sent = [rng.randbytes(rng.randrange(3000)) for _ in range(150)]
        record(writer, Stream(session_id=number, position=TERM * number), sent, time_ns=1, step_ns=50_000_000)
        if number < 2:
            recorder.stop(writer)
    index_file(directory, 1).unlink()
    os.close(recorder._directory._lock)
    return directory


def damage(directory: Path, rng: random.Random) -> None:
    """Apply one change of a kind that disks, programs or people make."""
    kind, path = rng.randrange(10), directory / CATALOG_FILE
    if kind < 4 and path.is_file() and path.stat().st_size >= 2 * FIRST_ENTRY:
        data = bytearray(path.read_bytes())
        entries = [FIRST_ENTRY]
        while entries[-1] + 320 < len(data) and (length := struct.unpack_from("<i", data, entries[-1])[0]) > 0:
            entries.append(entries[-1] + (32 + length + 63) // 64 * 64)
        at = rng.choice([entry for entry in entries if entry < len(data)])
        data += bytes(320)
        if rng.random() < 0.1:
            struct.pack_into("<i", data, rng.choice([0, 4, 8, 12, 16]), rng.choice(NUMBERS))
        elif rng.random() < 0.5:
            struct.pack_into("<q", data, at + rng.choice(LONG_FIELDS), rng.choice(LONG_NUMBERS))
        else:
            struct.pack_into("<i", data, at + rng.choice(INT_FIELDS), rng.choice(NUMBERS))
        path.write_bytes(data)
        return
    files = sorted(file for file in directory.iterdir() if file.is_file())
    path = rng.choice(files)
    size = path.stat().st_size
    if kind < 6:
        with path.open("r+b") as file:
            at = (
                rng.randrange(max(size // 8, 1)) * 8
                if rng.random() < 0.5
                else rng.randrange(min(max(size // 8, 1), 24)) * 8
            )
            file.seek(at)
            file.write(struct.pack("<q", rng.choice(LONG_NUMBERS)))
    elif kind == 6:
        with path.open("r+b") as file:
            for _ in range(rng.randrange(1, 8)):
                file.seek(rng.randrange(max(size, 1)))
                file.write(rng.randbytes(rng.randrange(1, 9)))
    elif kind == 7:
        os.truncate(
            path, rng.choice([0, 1, 7, 31, 32, 64, size // 2, max(size - 1, 0), size + 1, size + TERM, 1 << 30])
        )
    elif kind == 8:
        path.unlink()
        if rng.random() < 0.3:
            path.mkdir()
    else:
        base = rng.choice([1, 31, 12345, TERM, 10**18, (1 << 63) - 32, 10**40, 64 * TERM])
        another = directory / f"{rng.randrange(3)}-{base}.rec"
        if not another.exists():
            with path.open("rb") as file:
                another.write_bytes(file.read(1 << 20))


@contextmanager
def bounded() -> Iterator[None]:
    """Raise if the block takes too long or uses too much memory."""

    def late(_: int, frame: FrameType | None) -> None:
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"
        raise TimeoutError(f"not done after {SECONDS} s, in {where}")

    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    previous = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    assert time.process_time() - begin < 2 * SECONDS
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < MEMORY_BYTES, f"{grown >> 20} MiB"


def use(reader: RecordingReader) -> None:
    """Read in every way; each may raise RecordingError."""
    start, end = reader.start_position, reader.end_position()
    for call in (
        lambda: sum(rows for _, rows in batches(reader, start, end)),
        lambda: sum(rows for _, rows in batches(reader, start, end, strict=False)),
        lambda: sum(rows for _, rows in batches(reader, start, end, frames=True, strict=False)),
        lambda: reader.cuts(start, end, PARTS),
        lambda: reader.walk(start, end),
        lambda: reader.advance(start, end, max_bytes=TERM // 2),
        lambda: reader.advance(start, end, max_messages=10),
        lambda: reader.messages_before((start + end) // 2),
        lambda: reader.boundary_after(start, end),
        lambda: reader.position_at_time(1_000_000_000),
        lambda: reader.stamped_since(1_000_000_000),
        lambda: list(find_problems(reader, start, end)),
        lambda: find_end_problem(reader),
    ):
        with suppress(RecordingError):
            call()


def use_all(directory: Path) -> None:
    with suppress(RecordingError):
        read_catalog(directory, deleted=True)
    try:
        readers = open_recordings(directory)
    except RecordingError:
        readers = []
    for reader in readers:
        with closing(reader), suppress(RecordingError):
            use(reader)
    with suppress(RecordingError), Recorder(directory, segment_length=2 * TERM) as recorder:
        recorder.stop(recorder.start(**STREAM, join_position=0))


@pytest.mark.parametrize("part", range(PARTS))
def test_any_change_to_a_directory_gives_rows_or_an_error(whole: Path, tmp_path: Path, part: int) -> None:
    for seed in range(part, DIRECTORIES, PARTS):
        directory = tmp_path / str(seed)
        shutil.copytree(whole, directory)
        rng = random.Random(seed)
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            damage(directory, rng)
        try:
            with bounded():
                use_all(directory)
        except BaseException as error:
            error.add_note(f"directory {seed}")
            raise
        shutil.rmtree(directory)
