from __future__ import annotations

import random
import re
import struct
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.waiting import wait_for

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.errors import RecordingError
from mainstem.recording import Recorder
from mainstem.recording import catalog as catalog_module
from mainstem.recording.catalog import (
    CATALOG_FILE,
    CATALOG_VERSION,
    HEADER_LENGTH,
    Catalog,
    RecordingDescriptor,
    decode_catalog,
    find_catalog_problems,
    read_catalog,
)
from mainstem.store.disk import Disk


def le(*values: int, width: int = 4) -> bytes:
    return b"".join(value.to_bytes(width, "little", signed=True) for value in values)


# A handwritten entry: a 32-byte header, 80 fixed bytes and three strings.
BODY = (
    le(-1, 12, 3, 1_700_000_000_000, -1, 4096, -1, width=8)
    + le(-9, 134217728, 16777216, 1408, 77, 1001)
    + le(9) + b"aeron:ipc"
    + le(19) + b"aeron:ipc?alias=one"
    + le(0)
)  # fmt: skip
DESCRIPTOR = RecordingDescriptor(
    recording_id=3,
    correlation_id=12,
    start_timestamp=1_700_000_000_000,
    start_position=4096,
    initial_term_id=-9,
    session_id=77,
    stream_id=1001,
    stripped_channel="aeron:ipc",
    original_channel="aeron:ipc?alias=one",
)


def entry(body: bytes, *, state: int = 1, grain: int = 64) -> bytes:
    whole = (32 + len(body) + grain - 1) // grain * grain
    return (le(whole - 32, state, 0) + bytes(20) + body).ljust(whole, b"\0")


def header(*, alignment: int = 64, version: int = CATALOG_VERSION) -> bytes:
    return le(version, 32) + le(4, width=8) + le(alignment) + bytes(12)


def test_a_descriptor_is_encoded_as_aeron_archive_does() -> None:
    assert DESCRIPTOR.encode() == BODY
    assert RecordingDescriptor.decode(BODY + bytes(17)) == DESCRIPTOR


def test_reads_a_catalog_written_out_by_hand(tmp_path: Path) -> None:
    deleted = entry(BODY.replace(le(3, width=8), le(2, width=8)), state=2)
    invalid = entry(BODY, state=0)
    (tmp_path / CATALOG_FILE).write_bytes(header() + deleted + invalid + entry(BODY) + bytes(4096))
    assert read_catalog(tmp_path) == [DESCRIPTOR]
    assert [d.recording_id for d in read_catalog(tmp_path, deleted=True)] == [2, 3]


def test_reads_a_catalog_of_the_older_form(tmp_path: Path) -> None:
    (tmp_path / CATALOG_FILE).write_bytes(
        header(alignment=0).ljust(1024, b"\0") + entry(BODY, grain=1024) + entry(BODY, grain=1024) + bytes(1024)
    )
    assert read_catalog(tmp_path) == [DESCRIPTOR, DESCRIPTOR]
    catalog = Catalog(tmp_path)
    added = catalog.add(DESCRIPTOR)
    catalog.close()
    assert (added.recording_id, added.entry_offset) == (4, 3072)
    assert read_catalog(tmp_path)[2] == added


def test_writes_a_catalog_that_reads_as_written(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    first = catalog.add(DESCRIPTOR)
    second = catalog.add(DESCRIPTOR)
    assert (first.recording_id, second.recording_id) == (0, 1)
    stopped = catalog.stop(first, 8192, 1_700_000_001_000)
    assert read_catalog(tmp_path) == [stopped, second]
    assert catalog.extend(stopped) == first
    catalog.delete(second)
    catalog.close()
    catalog.close()
    assert read_catalog(tmp_path) == [first]
    data = (tmp_path / CATALOG_FILE).read_bytes()
    assert data[:20] == le(CATALOG_VERSION, 32) + le(2, width=8) + le(64)
    assert len(data) % 64 == 0


def test_an_entry_that_was_cut_while_it_was_added_is_not_seen_and_its_place_is_used_again(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    first = catalog.add(DESCRIPTOR)
    end = catalog.add(DESCRIPTOR).entry_offset
    catalog.close()
    grown = (tmp_path / CATALOG_FILE).read_bytes()
    # The entry's length is written last.
    for cut in range(end, len(grown)):
        torn = bytearray(grown[:cut])
        torn[end : end + 4] = bytes(min(4, cut - end))
        (tmp_path / CATALOG_FILE).write_bytes(torn)
        assert read_catalog(tmp_path) == [first]
    catalog = Catalog(tmp_path)
    assert catalog.add(replace(DESCRIPTOR, original_channel="")).entry_offset == end
    catalog.close()
    # Nothing remains of the part that was longer than the new entry.
    assert len(read_catalog(tmp_path)) == 2


@pytest.mark.parametrize("length", [32, 416, 4096, 1 << 20])
def test_a_catalog_never_shrinks(tmp_path: Path, length: int) -> None:
    (tmp_path / CATALOG_FILE).write_bytes(header() + bytes(length - 32))
    with Recorder(tmp_path) as recorder:
        for session_id in range(40):
            recorder.start(
                session_id=session_id,
                stream_id=1,
                initial_term_id=0,
                term_buffer_length=65536,
                mtu_length=1408,
                join_position=0,
            )
            now = (tmp_path / CATALOG_FILE).stat().st_size
            assert now >= length
            length = now
    assert [d.recording_id for d in read_catalog(tmp_path)] == list(range(4, 44))


def test_the_catalog_is_walked_once_and_again_only_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = []
    entries = catalog_module._entries
    monkeypatch.setattr(catalog_module, "_entries", lambda *args: walks.append(args) or entries(*args))
    catalog = Catalog(tmp_path)
    added = [catalog.add(DESCRIPTOR) for _ in range(20)]
    assert len(walks) == 1
    assert [catalog.entry(each.entry_offset) for each in added] == added
    with pytest.raises(RecordingError, match="100000"):
        catalog.add(replace(DESCRIPTOR, term_buffer_length=100_000))
    assert catalog.add(DESCRIPTOR).recording_id == 20 + added[0].recording_id
    assert len(walks) == 2
    catalog.close()
    assert [d.recording_id for d in read_catalog(tmp_path)] == list(
        range(added[0].recording_id, added[0].recording_id + 21)
    )


def test_an_id_is_never_used_twice(tmp_path: Path) -> None:
    # The header's next id lags behind the entries, and a recording that has lost its entry still has segments.
    late = header()[:8] + le(0, width=8) + header()[16:]
    (tmp_path / CATALOG_FILE).write_bytes(late + entry(BODY, state=0) + bytes(64))
    catalog = Catalog(tmp_path)
    assert catalog.add(DESCRIPTOR).recording_id == 4
    catalog.close()
    orphan = tmp_path / "7-0.rec"
    orphan.write_bytes(b"recorded")
    with Recorder(tmp_path) as recorder:
        writer = recorder.start(
            session_id=1, stream_id=1, initial_term_id=0, term_buffer_length=65536, mtu_length=1408, join_position=0
        )
        assert writer.descriptor.recording_id == 8
    assert orphan.read_bytes() == b"recorded"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes"),
        (header(version=9 << 16), "version 9"),
        (header(alignment=-64) + entry(BODY), "alignment of -64"),
        (header(alignment=48) + entry(BODY), "alignment of 48"),
        (header(alignment=1 << 20) + entry(BODY), "alignment of 1048576"),
    ],
)
def test_reports_a_file_that_is_not_a_catalog(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / CATALOG_FILE).write_bytes(data)
    with pytest.raises(RecordingError, match=reason):
        read_catalog(tmp_path)


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (le(2 << 20, 1, 0) + bytes((3 << 20) - 12), "2097152 bytes, more than"),
        (le(1 << 20, 1, 0) + bytes(52), "over the end"),
        (le(-5, 1, 0) + bytes(52), "a length of -5"),
        (bytes(128), "an entry is missing at 224"),
        (le(32, 1, 0) + bytes(52), "only 32 bytes"),
        (entry(BODY[:80] + le(1 << 20)), "text of 1048576"),
        (entry(bytes(len(BODY))), "term length 0"),
    ],
)
def test_a_damaged_entry_costs_only_itself(
    tmp_path: Path, damaged: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, last = (BODY.replace(le(3, width=8), le(number, width=8)) for number in (1, 2))
    assert HEADER_LENGTH + len(entry(first)) == 224
    whole = header() + entry(first) + damaged + entry(last)
    for tail in (b"", bytes(8192)):
        (tmp_path / CATALOG_FILE).write_bytes(whole + tail)
        assert [d.recording_id for d in read_catalog(tmp_path)] == [1, 2]
        (problem,) = find_catalog_problems(tmp_path)
        assert (problem.offset, problem.offset + problem.length) == (224, 224 + len(damaged))
        assert re.search(reason, problem.text)
        assert problem.text in caplog.text
    # A recorder replaces it with an invalid entry of the same length, so an archive can step over it and loses nothing else.
    with Recorder(tmp_path) as recorder:
        recorder.start(
            session_id=1, stream_id=1, initial_term_id=0, term_buffer_length=65536, mtu_length=1408, join_position=0
        )
    assert [d.recording_id for d in read_catalog(tmp_path)] == [1, 2, 4]
    assert find_catalog_problems(tmp_path) == []


@pytest.mark.parametrize("damaged", [le(5000, 1, 0) + bytes(52), le(-1, 1, 0) + bytes(52)])
def test_nothing_is_lost_after_the_last_entry(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / CATALOG_FILE).write_bytes(header() + entry(BODY) + damaged)
    assert (read_catalog(tmp_path), len(find_catalog_problems(tmp_path))) == ([DESCRIPTOR], 1)
    catalog = Catalog(tmp_path)
    assert catalog.add(DESCRIPTOR).recording_id == 4
    catalog.close()
    assert [d.recording_id for d in read_catalog(tmp_path)] == [3, 4]
    assert find_catalog_problems(tmp_path) == []


def test_a_file_of_possible_entries_is_read_in_bounded_time(tmp_path: Path) -> None:
    (tmp_path / CATALOG_FILE).write_bytes(
        header() + le(-1) + bytes(60) + (le((1 << 20) - 32, 1) + bytes(56)) * (1 << 17)
    )
    begin = time.process_time()
    assert read_catalog(tmp_path) == []
    assert time.process_time() - begin < 5


class Pages(Disk):
    """A disk that keeps any subset of the pages written since the last flush, as a power failure can."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, bytes]] = []
        self.path = Path()

    def open(self, path: Path) -> int:
        self.path = path
        return super().open(path)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        super().write(fd, data, offset)
        self.steps.append(("write", self.path.read_bytes()))

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.steps.append(("sync", self.path.read_bytes()))


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(
    ("channel", "entries"),
    [("aeron:ipc", 40), ("aeron:ipc?alias=" + 900 * "a", 25), ("aeron:ipc?alias=" + 5000 * "a", 5)],
)
def test_a_loss_of_power_while_an_entry_is_added_costs_no_other_entry(
    tmp_path: Path, durable: bool, channel: str, entries: int
) -> None:
    disk = Pages()
    catalog = Catalog(tmp_path, durable=durable, disk=disk)
    added: list[RecordingDescriptor] = []
    for number in range(entries):
        before, disk.steps = disk.steps[-1][1], []
        catalog.sync()
        alias = replace(DESCRIPTOR, original_channel=f"{channel}{3 * number * 'x'}")
        added.append(catalog.add(alias))
        written = disk.steps
        on_device = before
        for kind, now in written:
            if kind == "sync":
                on_device = now
            pages = range(0, len(now), 4096)
            changed = [at for at in pages if now[at : at + 4096] != on_device[at : at + 4096]]
            for kept in range(1 << len(changed)):
                data = bytearray(on_device.ljust(len(now), b"\0"))
                for bit, at in enumerate(changed):
                    if kept >> bit & 1:
                        data[at : at + 4096] = now[at : at + 4096]
                # The file may also still have its old length.
                for length in (len(data), len(on_device)):
                    assert decode_catalog(bytes(data[:length]), "catalog") in (added[:-1], added)
        assert not durable or on_device == now
    catalog.close()
    assert read_catalog(tmp_path) == added
    assert find_catalog_problems(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"segment_file_length": -1}, "segment length -1"),
        ({"segment_file_length": 0}, "segment length 0"),
        ({"term_buffer_length": 0}, "term length 0"),
        ({"term_buffer_length": -65536}, "term length -65536"),
        ({"mtu_length": 0}, "an MTU of 0"),
        ({"recording_id": -3}, "recording -3"),
        ({"start_position": -32}, "start position -32"),
        ({"start_position": 33}, "start position 33"),
        ({"stop_position": 4064}, "stops at 4064, before its start at 4096"),
        ({"stop_position": (1 << 63) - 32}, "stop position"),
        ({"start_timestamp": 1 << 62}, "start time"),
        ({"stop_timestamp": -2}, "stop time -2"),
    ],
)
def test_an_invalid_descriptor_is_left_out(tmp_path: Path, change: dict[str, int], reason: str) -> None:
    (tmp_path / CATALOG_FILE).write_bytes(header() + entry(replace(DESCRIPTOR, **change).encode()))
    assert read_catalog(tmp_path) == []
    (problem,) = find_catalog_problems(tmp_path)
    assert reason in problem.text


def test_an_identity_is_stable_and_differs_in_a_recreated_directory(tmp_path: Path) -> None:
    def start(directory: Path, *, session_id: int, at: int = 0) -> object:
        with Recorder(directory, segment_length=65536) as recorder:
            writer = recorder.start(
                session_id=session_id, stream_id=1, initial_term_id=0, term_buffer_length=65536, mtu_length=1408,
                join_position=at, channel="aeron:ipc",
            )  # fmt: skip
            identity = read_catalog(directory)[-1].identity
            assert writer.descriptor.identity == recorder.stop(writer).identity == identity
        assert read_catalog(directory)[-1].identity == identity
        return identity

    first = start(tmp_path / "a", session_id=7)
    began = read_catalog(tmp_path / "a")[-1].start_timestamp
    wait_for(lambda: SYSTEM_CLOCK.epoch_ms() > began, "a later start")
    assert start(tmp_path / "a", session_id=7) == first
    assert start(tmp_path / "a", session_id=7, at=64) != first
    assert start(tmp_path / "b", session_id=7) != first
    assert replace(DESCRIPTOR, session_id=78).identity == DESCRIPTOR.identity
    assert replace(DESCRIPTOR, stop_position=8192, stop_timestamp=1_700_000_001_000).identity == DESCRIPTOR.identity
    assert str(DESCRIPTOR.identity) == "1700000000000:1001:-9:16777216"


def test_a_directory_without_a_catalog_holds_no_recordings(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="holds no recordings"):
        read_catalog(tmp_path)


def test_an_invalid_recording_length_is_rejected(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    for name, value in (("term_buffer_length", 100_000), ("segment_file_length", (16 << 20) + 1)):
        with pytest.raises(RecordingError, match=str(value)):
            catalog.add(RecordingDescriptor(recording_id=0, start_timestamp=0, **{name: value}))
    catalog.close()


def test_the_version_is_three_one_zero() -> None:
    assert struct.pack("<i", CATALOG_VERSION) == b"\x00\x01\x03\x00"


def test_a_new_catalog_is_whole_from_its_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.replace

    def before(fresh: Path, path: Path) -> Path:
        # What a reader sees that arrives at this moment.
        with pytest.raises(RecordingError, match=r"there is no archive\.catalog"):
            read_catalog(tmp_path)
        return rename(fresh, path)

    monkeypatch.setattr(Path, "replace", before)
    Catalog(tmp_path).close()
    assert read_catalog(tmp_path) == []


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("alignment", [64, 1024])
def test_an_entry_is_replaced_while_the_catalog_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, alignment: int
) -> None:
    """Whatever changes between the steps, the result is that of the same changes one after the other."""
    monkeypatch.setattr(catalog_module, "COPY_LENGTH", 1000)
    choose = random.Random(seed)
    tmp_path.joinpath(CATALOG_FILE).write_bytes(header(alignment=alignment))
    catalog = Catalog(tmp_path)
    expected: dict[int, RecordingDescriptor] = {}
    offsets: dict[int, int] = {}

    def add() -> None:
        length = choose.choice((10, 300, 900))
        added = catalog.add(replace(DESCRIPTOR, original_channel="aeron:ipc?alias=" + length * "a", stop_position=8192))
        expected[added.recording_id], offsets[added.recording_id] = added, added.entry_offset

    def on_moved(at: int, moved: int) -> None:
        offsets.update({key: place + moved * (place > at) for key, place in offsets.items()})

    def change() -> None:
        recording_id = choose.choice(list(expected))
        now = replace(expected[recording_id], entry_offset=offsets[recording_id])
        match choose.choice(("add", "stop", "extend", "start", "session", "delete", "remove")):
            case "add":
                add()
            case "stop":
                expected[recording_id] = catalog.stop(now, choose.choice((8192, 16384)), 1_700_000_000_500)
            case "extend":
                expected[recording_id] = catalog.extend(now)
            case "start":
                catalog.set_start(now, 8192)
                expected[recording_id] = replace(now, start_position=8192)
            case "session":
                expected[recording_id] = catalog.set_session(now, choose.randrange(100))
            case "delete" if recording_id != target and len(expected) > 3:
                catalog.delete(now)
                del expected[recording_id], offsets[recording_id]
            case "remove" if choose.random() < 0.2:  # replaces the whole file
                catalog.remove([])

    for _ in range(8):
        add()
    for number in range(6):
        target = choose.choice(list(expected))
        channel = "aeron:ipc?alias=" + choose.choice((5, 20, 200, 800)) * f"{number}"
        steps = catalog.replace_entry(
            lambda: offsets[target],  # noqa: B023
            lambda now: replace(now, original_channel=channel),  # noqa: B023
            on_moved,
        )
        for _ in steps:
            if choose.random() < 0.2:
                change()
        expected[target] = replace(expected[target], original_channel=channel)
        change()
        found = {each.recording_id: each for each in catalog.recordings()}
        assert found == expected
        assert {key: each.entry_offset for key, each in found.items()} == offsets
        assert find_catalog_problems(tmp_path) == []
    add()
    assert {each.recording_id: each for each in catalog.recordings()} == expected
    catalog.close()


class Failing(Disk):
    """A disk on which the call fails that makes ``left`` zero."""

    left = -1

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(28, "No space left on device")

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self._count()
        super().write(fd, data, offset)

    def sync(self, fd: int) -> None:
        self._count()
        super().sync(fd)

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)


def test_an_addition_or_a_new_session_that_fails_leaves_the_catalog_as_it_is(tmp_path: Path) -> None:
    disk = Failing()
    catalog = Catalog(tmp_path, durable=True, disk=disk)
    one = catalog.add(DESCRIPTOR)
    before = read_catalog(tmp_path)
    for change in (lambda: catalog.add(DESCRIPTOR), lambda: catalog.set_session(one, 7)):
        attempt = 0
        while read_catalog(tmp_path) == before:
            attempt += 1
            disk.left = attempt
            try:
                change()
            except OSError:
                assert read_catalog(tmp_path) == before
            disk.left = -1
        assert attempt > 1
        before = read_catalog(tmp_path)
    assert [each.session_id for each in before] == [7, DESCRIPTOR.session_id]
    catalog.close()


def test_replacing_an_entry_that_fails_leaves_the_catalog_as_it_is(tmp_path: Path) -> None:
    disk = Failing()
    catalog = Catalog(tmp_path, disk=disk)
    one, two = catalog.add(DESCRIPTOR), catalog.add(DESCRIPTOR)
    before, attempt = read_catalog(tmp_path), 0
    while read_catalog(tmp_path) == before:
        attempt += 1
        disk.left = attempt
        steps = catalog.replace_entry(
            lambda: one.entry_offset, lambda now: replace(now, original_channel=300 * "x"), lambda *_: None
        )
        with suppress(OSError):
            for _ in steps:
                pass
        disk.left = -1
        if read_catalog(tmp_path) == before:
            assert catalog.entry(two.entry_offset) == two
    assert attempt > 5
    assert [each.recording_id for each in read_catalog(tmp_path)] == [0, 1]
    assert catalog.add(DESCRIPTOR).recording_id == 2
    assert len(read_catalog(tmp_path)) == 3
    catalog.close()
