"""Planning over thousands of recordings, in one location or several, costs only as much as the recordings that grew."""

from __future__ import annotations

import json
import os
import resource
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.many_recordings import TERM, make_recordings
from tests.support.remote_store import RemoteStore
from tests.support.streams import Stream, record

from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording import Recorder, read_catalog
from mainstem.recording import reader as readers
from mainstem.recording.archive import IDENTITY_FILE
from mainstem.recording.catalog import Catalog
from mainstem.recording.rows.schema import MESSAGE_COLUMNS
from mainstem.spark.sources import archives, planning
from mainstem.spark.sources.features import ReadAllAvailable, ReadMaxBytes
from mainstem.spark.sources.offsets import Finished, FinishedPosition, pack, parse_offset, unpack
from mainstem.spark.sources.options import ARCHIVE_COLUMNS, parse_options
from mainstem.spark.sources.recording import RecordingStreamReader, whole_schema
from mainstem.spark.sources.task_reader import RecordingGroup
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STREAM = {"stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}
COLUMNS = [*MESSAGE_COLUMNS, *ARCHIVE_COLUMNS]


@pytest.fixture
def stream() -> Iterator[Callable[..., RecordingStreamReader]]:
    opened = []

    def make(*paths: Path | str, **options: str) -> RecordingStreamReader:
        location = {"path": str(paths[0])} if len(paths) == 1 else {"paths": json.dumps([str(path) for path in paths])}
        opened.append(RecordingStreamReader(parse_options(location | options), dict.fromkeys(COLUMNS, True)))
        return opened[-1]

    yield make
    for each in opened:
        each.stop()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the opened recordings, in order."""
    ids: list[int] = []
    init = readers.RecordingReader.__init__

    def counted(self: Any, archive: Any, descriptor: Any) -> None:
        ids.append(descriptor.recording_id)
        init(self, archive, descriptor)

    monkeypatch.setattr(readers.RecordingReader, "__init__", counted)
    return ids


def latest(stream: RecordingStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(stream.latestOffset(json.loads(json.dumps(start)), ReadAllAvailable())))


def rows(stream: RecordingStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for task in stream.partitions(start, end) for batch in stream.read(task) for row in batch.to_pylist()]


def recorded(path: Path, *sessions: int, messages: int = 10) -> None:
    with Recorder(path, segment_length=TERM) as recorder:
        for session in sessions:
            writer = recorder.start(**STREAM, session_id=session, join_position=0)
            record(writer, Stream(session_id=session), [bytes([session]) * 96] * messages)


def test_an_idle_trigger_opens_and_lists_nothing(
    tmp_path: Path, stream: Any, opened: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = make_recordings(tmp_path, 300, growing=5)
    reader = stream(tmp_path)
    begin = reader.initialOffset()
    end = latest(reader, begin)
    assert len(rows(reader, begin, end)) == 3000
    opened.clear()
    lists: list[str] = []
    original = LocalStore.list
    monkeypatch.setattr(LocalStore, "list", lambda self, *a, **k: (lists.append(self.url), original(self, *a, **k))[1])
    for _ in range(3):
        assert latest(reader, end) == end
        assert parse_offset(reader.reportLatestOffset()).positions == parse_offset(end).positions
    assert (opened, lists) == ([], [])
    growing[3].grow(2)
    after = latest(reader, end)
    assert [task.descriptor.recording_id for task in reader.partitions(end, after)] == [298]
    assert set(opened) <= {298}
    assert len(lists) == 2
    for each in growing:
        each.close()


def test_finished_recordings_take_little_of_an_offset(tmp_path: Path, stream: Any) -> None:
    growing = make_recordings(tmp_path, 400, growing=2)
    reader = stream(tmp_path)
    end = latest(reader, reader.initialOffset())
    (archive,) = end["archives"].values()
    assert sorted(archive["positions"]) == ["398", "399"]
    assert len(json.dumps(end)) < 400 * 8 + 1000
    assert parse_offset(end).positions == dict.fromkeys(range(400), 1280)
    for each in growing:
        each.close()


def test_files_stay_within_the_limit(tmp_path: Path, stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MAX_READERS", 10)
    growing = make_recordings(tmp_path, 120, growing=60)
    reader = stream(tmp_path, maxBytesPerTrigger="100000")
    before = len(os.listdir("/proc/self/fd"))
    begin, seen, total = reader.initialOffset(), 0, 0
    while True:
        end = json.loads(json.dumps(reader.latestOffset(begin, ReadMaxBytes(100_000))))
        seen = max(seen, len(os.listdir("/proc/self/fd")))
        if end == begin:
            break
        total += len(rows(reader, begin, end))
        begin = end
    assert total == 1200
    assert seen - before <= 10 * planning.FILES_PER_READER
    for each in growing:
        each.close()


def test_fewer_open_files_mean_fewer_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (300, 4096))
    assert planning.max_readers() == (300 - planning.RESERVED_FILES) // planning.FILES_PER_READER
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert planning.max_readers() == 1
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert planning.max_readers() == planning.MAX_READERS


def test_small_recordings_share_tasks_and_batches(tmp_path: Path, stream: Any) -> None:
    make_recordings(tmp_path, 300)
    reader = stream(tmp_path, parallelism="3")
    begin = reader.initialOffset()
    end = latest(reader, begin)
    tasks = reader.partitions(begin, end)
    assert len(tasks) == 3
    assert all(isinstance(task, RecordingGroup) for task in tasks)
    assert sum(len(list(reader.read(task))) for task in tasks) == 3
    read = rows(reader, begin, end)
    assert sorted((row["recording_id"], row["position"]) for row in read) == [
        (number, 128 * (message + 1)) for number in range(300) for message in range(10)
    ]


def test_the_number_of_tasks_is_that_of_the_session_and_not_of_this_machine(tmp_path: Path, stream: Any) -> None:
    make_recordings(tmp_path, 200)
    for parallelism in (1, 7, 50):
        reader = stream(tmp_path, parallelism=str(parallelism))
        begin = reader.initialOffset()
        assert len(reader.partitions(begin, latest(reader, begin))) == pytest.approx(parallelism, abs=2)


def test_a_finished_recording_that_is_extended_is_read_on_also_from_within_a_message(
    tmp_path: Path, stream: Any
) -> None:
    whole = Stream(session_id=7)
    first, second = whole.message(bytes(96)), whole.message(b"x" * 3000)
    with Recorder(tmp_path, segment_length=TERM) as recorder:
        writer = recorder.start(**STREAM, session_id=7, join_position=0)
        writer.write(memoryview(first), 0)
        # The first fragment of a message is recorded, and then the recorder stops.
        writer.write(memoryview(second[:1408]), 0)
    reader = stream(tmp_path)
    begin = reader.initialOffset()
    end = latest(reader, begin)
    assert [row["length"] for row in rows(reader, begin, end)] == [96]
    assert latest(reader, end) == end
    with Recorder(tmp_path, segment_length=TERM) as recorder:
        writer = recorder.start(**STREAM, session_id=7, join_position=len(first) + 1408)
        writer.write(memoryview(second[1408:]), 0)
        for again in (reader, stream(tmp_path)):
            after = latest(again, end)
            assert [row["payload"] for row in rows(again, end, after)] == [b"x" * 3000]
            assert latest(again, after) == after


def test_only_a_fully_read_recording_can_be_deleted(tmp_path: Path, stream: Any) -> None:
    recorded(tmp_path, 1, 2)
    reader = stream(tmp_path)
    begin = reader.initialOffset()
    end = latest(reader, begin)
    catalog = Catalog(tmp_path)
    catalog.delete(read_catalog(tmp_path)[0])
    catalog.close()
    for again in (reader, stream(tmp_path)):
        assert latest(again, end) == end
        with pytest.raises(RecordingError, match="recording 0 is missing"):
            again.partitions(begin, end)
    recorded(tmp_path, 3)
    after = latest(reader, end)
    assert parse_offset(after).positions == {1: 1280, 2: 1280}
    assert [row["session_id"] for row in rows(reader, end, after)] == [3] * 10


def test_several_places_are_one_source_with_new_ones_while_it_runs(tmp_path: Path, stream: Any) -> None:
    recorded(tmp_path / "north" / "rec", 1)
    recorded(tmp_path / "south" / "rec", 2, 3)
    (tmp_path / "south" / "rec" / IDENTITY_FILE).write_text('{"id": "7f3a", "host": "south.example"}')
    recorded(tmp_path / "other", 4)
    (tmp_path / "empty" / "rec").mkdir(parents=True)
    reader = stream(f"{tmp_path}/*/rec", tmp_path / "other")
    begin = reader.initialOffset()
    end = latest(reader, begin)
    read = {(row["archive"], row["host"], row["session_id"]) for row in rows(reader, begin, end)}
    assert read == {
        (f"{tmp_path}/north/rec", None, 1),
        ("7f3a", "south.example", 2),
        ("7f3a", "south.example", 3),
        (f"{tmp_path}/other", None, 4),
    }
    recorded(tmp_path / "empty" / "rec", 5)
    recorded(tmp_path / "west" / "rec", 6)
    for again in (reader, stream(f"{tmp_path}/*/rec", tmp_path / "other")):
        after = latest(again, end)
        assert sorted(row["session_id"] for row in rows(again, end, after)) == [5] * 10 + [6] * 10
    shutil.rmtree(tmp_path / "north")
    assert latest(reader, after) == after


def spellings(path: Path) -> list[str]:
    """Spell the path of a directory in several ways, also through a link to the directory above it."""
    (link := path.parents[1] / "link").symlink_to(path.parent)
    relative = os.path.relpath(path)
    above = f"{path.parent}/../{path.parent.name}/{path.name}"
    return [f"{path}/", f"{path}//", path.as_uri(), f"{path.as_uri()}/", relative, above, f"{link}/{path.name}"]


def test_the_same_place_under_another_name_is_not_read_again(tmp_path: Path, stream: Any) -> None:
    north, south = tmp_path / "sea" / "north", tmp_path / "sea" / "south"
    recorded(north, 1)
    recorded(south, 2)
    reader = stream(north, south)
    end = latest(reader, reader.initialOffset())
    for name, other in zip(spellings(north), [*map(str, [south] * 6), str(tmp_path / "link" / "south")], strict=True):
        for paths in ((name, other), (other, name)):
            assert latest(stream(*paths), end) == end
        # Two names in one query are one archive, too.
        assert latest(stream(north, name, other, south), end) == end
    for pattern in (f"{tmp_path}/sea/../sea/*", f"{tmp_path}/link/*", f"{os.path.relpath(tmp_path)}/*/*"):
        assert latest(stream(pattern), end) == end
    recorded(north, 3)
    again = stream(f"{tmp_path}/link/*")
    assert [row["session_id"] for row in rows(again, end, latest(again, end))] == [3] * 10


def test_a_checkpoint_with_paths_as_they_were_spelled_continues(tmp_path: Path, stream: Any) -> None:
    for name in ("north", "south"):
        recorded(tmp_path / "sea" / name, 1)
    reader = stream(f"{tmp_path}/sea/*")
    end = latest(reader, reader.initialOffset())
    (tmp_path / "link").symlink_to(tmp_path / "sea")
    # Offsets had the paths themselves before they had places.
    spelled = {
        key.replace("/sea/", "/link/"): {**value, "url": value["url"].replace("/sea/", "/link/")}
        for key, value in end["archives"].items()
    }
    before = {**end, "archives": spelled}
    for again in (stream(f"{tmp_path}/link/*"), stream(f"{tmp_path}/sea/*")):
        assert latest(again, before) == before


def test_a_link_that_leads_elsewhere_is_noticed(tmp_path: Path, stream: Any) -> None:
    for name, session in (("old", 1), ("new", 2)):
        recorded(tmp_path / name, session)
    (link := tmp_path / "link").symlink_to(tmp_path / "old")
    reader = stream(link)
    end = latest(reader, reader.initialOffset())
    link.unlink()
    link.symlink_to(tmp_path / "new")
    with pytest.raises(RecordingError, match="is not the one of the checkpoint"):
        latest(stream(link), end)


@pytest.mark.parametrize("change", ["renamed", "named"])
def test_a_renamed_or_newly_identified_archive_continues(tmp_path: Path, stream: Any, change: str) -> None:
    recorded(tmp_path / "rec", 1)
    reader = stream(tmp_path / "rec")
    end = latest(reader, reader.initialOffset())
    if change == "renamed":
        (tmp_path / "rec").rename(tmp_path / "moved")
    else:
        (tmp_path / "rec" / IDENTITY_FILE).write_text('{"id": "7f3a"}')
    again = stream(tmp_path / ("moved" if change == "renamed" else "rec"))
    assert rows(again, end, latest(again, end)) == []


def test_a_remote_place_is_listed_once_for_a_trigger_that_moves_something(
    tmp_path: Path, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = make_recordings(tmp_path / "rec", 30, growing=3)
    store = RemoteStore(tmp_path / "rec")
    for module in ("mainstem.recording.open_archives", "mainstem.spark.sources.archives"):
        monkeypatch.setattr(f"{module}.open_store", lambda *_: store)
    reader = stream("remote://rec")
    begin = reader.initialOffset()
    end = latest(reader, begin)
    assert len(rows(reader, begin, end)) == 300
    store.reads.clear()
    lists = store.lists
    assert latest(reader, end) == end
    # The catalog, and the recorded positions of active recordings.
    assert (len(store.reads), store.lists) == (4, lists)
    growing[1].grow()
    after = latest(reader, end)
    assert store.lists == lists + 1
    assert [row["recording_id"] for row in rows(reader, end, after)] == [28]
    for each in growing:
        each.close()


def test_several_archives_add_archive_columns(tmp_path: Path) -> None:
    one, many = parse_options({"path": "/data/a"}), parse_options({"paths": '["/data/a", "s3://b/c"]'})
    assert (one.archive_columns, one.paths) == (False, ("/data/a",))
    assert (many.archive_columns, many.paths) == (True, ("/data/a", "s3://b/c"))
    assert parse_options({"path": "s3://b/*/rec"}).archive_columns
    assert parse_options({"path": "/data/a", "archiveColumns": "true"}).archive_columns
    assert not parse_options({"path": "/data/*", "archiveColumns": "false"}).archive_columns
    assert whole_schema(many).fields[:-2] == whole_schema(one).fields
    assert [(each.name, each.nullable) for each in whole_schema(many).fields[-2:]] == [
        ("archive", False),
        ("host", True),
    ]
    (tmp_path / "a[1]").mkdir()
    assert not parse_options({"path": str(tmp_path / "a[1]")}).archive_columns


def test_options_of_the_store_pass_through_and_others_are_refused() -> None:
    options = parse_options({"path": "s3://b/c", "fs.s3a.endpoint": "h:1", "access_key": "topsecret", "streamId": "5"})
    assert options.read.store == {"fs.s3a.endpoint": "h:1", "access_key": "topsecret"}
    assert "topsecret" not in repr(options)
    with pytest.raises(ConfigurationError, match="no option 'acces_key'"):
        parse_options({"path": "s3://b/c", "acces_key": "x"})


def test_patterns_match_level_by_level(tmp_path: Path) -> None:
    for name in ("a/x/rec", "a/y/rec", "b/x/rec", "b/z/other", "c1/x/rec"):
        (tmp_path / name).mkdir(parents=True)

    def matched(pattern: str) -> list[str]:
        return [path.removeprefix(f"{tmp_path}/") for path in archives.matches(f"{tmp_path}/{pattern}", {})]

    assert matched("*/x") == ["a/x", "b/x", "c1/x"]
    assert matched("[ab]/?/rec") == ["a/x/rec", "a/y/rec", "b/x/rec", "b/z/rec"]
    assert matched("c?/*") == ["c1/x"]
    assert matched("none*/x") == []
    with pytest.raises(ConfigurationError, match="the bucket or server of a pattern must not have wildcards"):
        list(archives.matches("s3://*/rec", {}))


def test_starting_positions_may_name_the_archive(tmp_path: Path, stream: Any) -> None:
    recorded(tmp_path / "a", 1)
    recorded(tmp_path / "b", 2)
    where = json.dumps({f"{tmp_path}/a/0": 640, "0": "latest"})
    begin = stream(tmp_path / "a", tmp_path / "b", startingPositions=where).initialOffset()
    assert {key: parse_offset(begin).archives[key].all_positions for key in begin["archives"]} == {
        f"{tmp_path}/a": {0: 640},
        f"{tmp_path}/b": {0: 1280},
    }


def test_messages_from_a_position_that_were_purged_are_lost_data(tmp_path: Path, stream: Any) -> None:
    recorded(tmp_path, 1, messages=1500)
    wanted = {"fromPosition": "4100"}
    reader = stream(tmp_path, **wanted)
    begin = reader.initialOffset()
    end = latest(reader, begin)
    (tmp_path / "0-0.rec").unlink()
    with pytest.raises(RecordingError, match=f"positions 4099 to {TERM} were purged"):
        rows(reader, begin, end)
    reader = stream(tmp_path, **wanted, failOnDataLoss="false")
    assert min(row["position"] for row in rows(reader, begin, end)) == TERM + 128
    # What was purged before the position is not missed.
    reader = stream(tmp_path, fromPosition=str(TERM + 200))
    assert min(row["position"] for row in rows(reader, begin, end)) == TERM + 256


def test_packed_recordings_are_unpacked_and_other_values_rejected() -> None:
    ends = {5: (96, 1), 0: (1 << 40, 4_000_000_000, 65_535), 10_000_000_000: (0, 0)}
    finished = Finished({each: FinishedPosition(*end) for each, end in ends.items()})
    assert unpack(pack(finished)) == finished
    for text in ("?", "AAAA", pack(finished)[:-8], ""):
        with pytest.raises(ConfigurationError, match="cannot read an offset"):
            unpack(text)


@pytest.mark.parametrize("where", ["4096", '{"0": 4096}', '{"0": 0}'])
def test_a_starting_position_that_was_purged_is_lost_data(tmp_path: Path, stream: Any, where: str) -> None:
    recorded(tmp_path, 1, messages=1500)
    (tmp_path / "0-0.rec").unlink()
    with pytest.raises(
        RecordingError, match=rf"positions {0 if ': 0' in where else 4096} to {TERM} .* were purged; set fail"
    ):
        stream(tmp_path, startingPositions=where).initialOffset()
    for options in ({"failOnDataLoss": "false", "startingPositions": where}, {"startingPositions": str(TERM)}, {}):
        begin = stream(tmp_path, **options).initialOffset()
        assert list(parse_offset(begin).positions.values()) == [TERM]
