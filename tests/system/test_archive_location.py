"""``aeron-archive://host:port`` as a location: a reader gets exactly what the archive's directory holds."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from tests.support.ports import free_port
from tests.support.recorded import has_stopped, recorded_position
from tests.support.waiting import STALL_S, StallTimeout, wait_for

import mainstem
from mainstem import MediaDriver, archive
from mainstem._core.layout import COLUMN_POSITION
from mainstem.archive import remote_archive
from mainstem.archive.remote_archive import RemoteArchive
from mainstem.archive.server import Accept, ArchiveServer, Challenge, Reject
from mainstem.errors import ArchiveError, ArchiveErrorCode, ConfigurationError, RecordingError, StoreError
from mainstem.recording import batches, find_problems, messages, open_recording, open_recordings
from mainstem.recording.persistent import history

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.system

SEGMENT = 128 << 10
COUNT = 1000
CHANNEL = "aeron:ipc?term-length=64k"


class Served:
    """An archive in this process that has one stopped recording."""

    def __init__(self, path: Path, driver: MediaDriver) -> None:
        self.path, self.driver = path, driver
        self.port = free_port()
        self.url = f"aeron-archive://localhost:{self.port}"
        self.server: Any = None
        self.start()

    def start(self, **options: Any) -> None:
        control = f"aeron:udp?endpoint=localhost:{self.port}"
        values = {"control_channel": control, "segment_file_length": SEGMENT, **options}
        self.server = ArchiveServer.launch(self.path, self.driver.directory, **values)

    def options(self, **more: str) -> dict[str, str]:
        return {"aeron_dir": self.driver.directory, **more}


def payload(number: int) -> bytes:
    return number.to_bytes(4, "big") * (1 + number % 1200)


def record(aeron: mainstem.Aeron, stream_id: int = 1001, count: int = COUNT) -> None:
    with archive.connect("aeron:ipc", aeron=aeron) as client:
        recording_id = len(list(client.list_recordings()))
        client.start_recording("aeron:ipc", stream_id, auto_stop=True)
        with aeron.add_exclusive_publication(CHANNEL, stream_id) as publication:
            for number in range(count):
                publication.send(payload(number), timeout=STALL_S)
        wait_for(lambda: has_stopped(client, recording_id))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with MediaDriver.launch() as driver:
        made = Served(tmp_path_factory.mktemp("location") / "archive", driver)
        with mainstem.connect(driver.directory) as aeron:
            record(aeron)
            record(aeron, 1002, 10)
        yield made
        made.server.close()


def test_every_way_of_reading_gives_what_the_directory_holds(served: Served) -> None:
    with open_recordings(served.url, served.options()) as there, open_recordings(served.path) as here:
        assert len(there) == len(here) == 2
        for remote, local in zip(there, here, strict=True):
            same = {"control_session_id": -1, "correlation_id": -1}  # no message uses these ids
            assert vars(remote.descriptor) == vars(local.descriptor) | same | {"entry_offset": -1}
            start, end = local.start_position, local.end_position()
            assert (remote.start_position, remote.end_position()) == (start, end)
            assert remote.checksum(start, end) == local.checksum(start, end)
            assert list(messages(remote, start, end)) == list(messages(local, start, end))
            assert list(find_problems(remote, start, end)) == []
            assert remote.cuts(start, end, 5) == local.cuts(start, end, 5)
        for frames in (False, True):
            assert rows(there, frames=frames) == rows(here, frames=frames)
        where = [("position", ">", 70_000), ("position", "<", 300_000), ("stream_id", "=", 1001)]
        assert rows(there, where=where) == rows(here, where=where) != []
    with open_recording(served.url, 1, served.options()) as reader:
        assert len(list(messages(reader, 0, reader.end_position()))) == 10
    wait_for(lambda: served.server.stats().replays == served.server.stats().control_sessions == 0)


def rows(recordings: Any, **options: Any) -> list[dict[str, Any]]:
    """Return the rows without times, because only an archive's directory has the times from Mainstem's index."""
    table = recordings.scan(**options).to_arrow()
    found: list[dict[str, Any]] = table.drop(["recorded_at"]).to_pylist()
    return found


def test_bytes_are_read_wherever_frames_begin(served: Served) -> None:
    with open_recordings(served.url, served.options()) as there, open_recordings(served.path) as here:
        remote, local = there[0], here[0]
        for base in (0, SEGMENT):
            segments = [each.archive.segment(each.descriptor, base) for each in (remote, local)]
            for start, end in ((0, 1), (5, 4000), (60_000, 70_001), (SEGMENT - 33, SEGMENT)):
                assert segments[0].read(start, end) == segments[1].read(start, end)
        last = remote.archive.segment(remote.descriptor, remote.end_position() // SEGMENT * SEGMENT)
        with pytest.raises(RecordingError, match="before"):
            last.read(0, SEGMENT)


def test_a_driver_is_started_where_none_runs(served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AERON_DIR", str(tmp_path / "none"))
    with open_recording(served.url, 0) as reader:
        assert isinstance(reader.archive, RemoteArchive)
        directory = reader.archive._aeron.directory
        assert directory not in (served.driver.directory, str(tmp_path / "none"))
        assert len(list(messages(reader, 0, reader.end_position()))) == COUNT
        reader.archive.close()
    assert not (tmp_path / "none").exists()
    monkeypatch.setenv("AERON_DIR", served.driver.directory)
    with open_recordings(served.url) as recordings:
        assert recordings[0].archive._aeron.directory == served.driver.directory  # type: ignore[attr-defined]


def test_a_query_goes_on_in_a_recording_that_another_session_extends(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from mainstem.spark.sources.features import ReadAllAvailable
    from mainstem.spark.sources.options import parse_options
    from mainstem.spark.sources.recording import RecordingStreamReader

    with MediaDriver.launch() as driver:
        made = Served(tmp_path / "archive", driver)
        places = [(made.url, made.options()), (str(made.path), {})]
        offsets: list[Any] = [None] * len(places)
        sent: list[bytes] = []

        def check() -> None:
            for number, (location, options) in enumerate(places):
                # Each time a restarted query.
                stream = RecordingStreamReader(parse_options({"path": location, **options}), {"payload": False})
                begin = offsets[number] or stream.initialOffset()
                end = offsets[number] = json.loads(json.dumps(stream.latestOffset(begin, ReadAllAvailable())))
                parts = stream.partitions(begin, end)
                found = [row["payload"] for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
                stream.stop()
                assert found == sent

        with (
            closing(made.server),
            mainstem.connect(driver.directory) as aeron,
            archive.connect("aeron:ipc", aeron=aeron) as client,
        ):
            for run in range(3):
                stream_id, channel = 1009, CHANNEL
                if run == 0:
                    client.start_recording("aeron:ipc", stream_id, auto_stop=True)
                else:
                    channel = archive.extension_channel(CHANNEL, client.list_recording(0))
                    client.extend_recording(0, "aeron:ipc", stream_id, auto_stop=True)
                with aeron.add_exclusive_publication(channel, stream_id) as publication:
                    sent = [b"%d/%d" % (run, number) * 20 for number in range(100)]
                    for payload in sent:
                        publication.send(payload, timeout=STALL_S)
                    wait_for(lambda: recorded_position(client, 0) == publication.position)
                    if run == 1:  # while it is extended, and otherwise after that
                        check()
                wait_for(lambda: client.list_recording(0).stop_position > 0)
                if run != 1:
                    check()


def test_a_reader_that_stops_early_leaves_no_replay(served: Served) -> None:
    with open_recordings(served.url, served.options()) as recordings:
        for _ in range(30):  # more than the archive's limit of concurrent replays
            found = messages(recordings[0], 0, recordings[0].end_position())
            assert next(found)[1] == payload(0)
            del found
        wait_for(lambda: served.server.stats().replays == 0)


def test_a_recording_that_grows_is_read_up_to_where_it_is(served: Served) -> None:
    with mainstem.connect(served.driver.directory) as aeron, archive.connect("aeron:ipc", aeron=aeron) as client:
        client.start_recording("aeron:ipc", 1003, auto_stop=True)
        with aeron.add_exclusive_publication(CHANNEL, 1003) as publication:
            for number in range(100):
                publication.send(payload(number), timeout=STALL_S)
            next(client.events(timeout=STALL_S))  # wait until the recording exists
            wait_for(lambda: client.recording_position(2) == publication.position)
            with open_recording(served.url, 2, served.options()) as reader:
                end = reader.end_position()
                assert end == publication.position
                assert reader.has_recorded_end
                assert [data for _, data in messages(reader, 0, end)] == [payload(number) for number in range(100)]
                publication.send(payload(100), timeout=STALL_S)
                wait_for(lambda: reader.end_position() == publication.position)
                assert [data for _, data in messages(reader, end, publication.position)] == [payload(100)]
        wait_for(lambda: client.stop_position(2) is not None)
        client.purge_recording(2)


def test_a_persistent_subscription_that_is_live_holds_no_replay(served: Served) -> None:
    with mainstem.connect(served.driver.directory) as aeron, archive.connect("aeron:ipc", aeron=aeron) as client:
        client.start_recording("aeron:ipc", 1004, auto_stop=True)
        with aeron.add_exclusive_publication(CHANNEL, 1004) as publication:
            for number in range(COUNT):
                publication.send(payload(number), timeout=STALL_S)
            event = next(client.events(timeout=STALL_S))
            wait_for(lambda: client.recording_position(event.recording_id) == publication.position)
            with aeron.add_persistent_subscription("aeron:ipc", 1004, recordings=served.url) as subscription:
                found = subscription.messages(timeout=STALL_S)
                assert [next(found) for _ in range(COUNT)] == [payload(number) for number in range(COUNT)]
                publication.send(payload(COUNT), timeout=STALL_S)
                assert next(found) == payload(COUNT)
                assert subscription.is_live
                wait_for(lambda: served.server.stats().replays == 0)
        wait_for(lambda: client.stop_position(event.recording_id) is not None)
        client.purge_recording(event.recording_id)


@pytest.mark.long
def test_reading_continues_when_the_archive_restarts(served: Served) -> None:
    with open_recording(served.url, 0, served.options()) as reader:
        found = messages(reader, 0, reader.end_position())
        received = [next(found)[1]]
        served.server.close()
        restarting = threading.Timer(1.0, served.start)
        restarting.start()
        received += [data for _, data in found]
        restarting.join()
        assert received == [payload(number) for number in range(COUNT)]


def start_process(path: Path, directory: str, port: int) -> subprocess.Popen[str]:
    """Start ``mainstem archive``. After a kill, it cannot use the directory until the previous process's mark expires."""
    line = [sys.executable, "-m", "mainstem", "archive", "--archive-dir", str(path), "--dir", directory]
    line += ["--control", f"aeron:udp?endpoint=localhost:{port}", "--set", "segment_file_length=128k"]
    stall = StallTimeout("the archive starts")
    while True:
        process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        if any("requests on" in each for each in process.stderr):
            return process
        process.communicate()
        stall.check()


@pytest.mark.long
def test_reading_continues_after_the_archive_was_killed(tmp_path: Path) -> None:
    port = free_port()
    with MediaDriver.launch() as driver, mainstem.connect(driver.directory) as aeron:
        process = start_process(tmp_path, driver.directory, port)
        try:
            record(aeron)
            with open_recording(f"aeron-archive://localhost:{port}", 0) as reader:
                rows = batches(reader, 0, reader.end_position(), column_mask=COLUMN_POSITION, rows=10)
                found = [next(rows)]
                process.kill()
                process.communicate()
                process = start_process(tmp_path, driver.directory, port)
                found += rows
            ends = [end for columns, _ in found for end in memoryview(columns["position"]).cast("q")]
            with open_recording(tmp_path, 0) as reader:
                assert ends == [position for position, _ in messages(reader, 0, reader.end_position())]
        finally:
            process.terminate()
            process.communicate()


def test_recordings_that_are_gone_or_cut_are_errors_of_the_recording(tmp_path: Path) -> None:
    with MediaDriver.launch() as driver, mainstem.connect(driver.directory) as aeron:
        served = Served(tmp_path, driver)
        record(aeron)
        with (
            open_recordings(served.url, served.options()) as recordings,
            archive.connect("aeron:ipc", aeron=aeron) as client,
        ):
            reader = recordings[0]
            end = reader.end_position()
            client.purge_segments(0, SEGMENT)
            with pytest.raises(RecordingError, match="recording 0"):
                list(messages(reader, 0, end))
            reader.archive.refresh()
            reader.update(reader.archive.recordings()[0])
            assert reader.start_position == SEGMENT
            assert len(list(messages(reader, SEGMENT, end))) < COUNT
            client.purge_recording(0)
            with pytest.raises(RecordingError, match="unknown recording"):
                list(messages(reader, SEGMENT, end))
        served.server.close()


def test_a_recording_that_is_truncated_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    with MediaDriver.launch() as driver, mainstem.connect(driver.directory) as aeron:
        served = Served(tmp_path, driver)
        record(aeron)
        with (
            open_recordings(served.url, served.options()) as recordings,
            archive.connect("aeron:ipc", aeron=aeron) as client,
        ):
            reader = recordings[0]
            end = reader.end_position()
            found = batches(reader, 0, end, column_mask=COLUMN_POSITION, rows=10)
            rows = next(found)[1]
            # Whatever somebody else stops is replayed again from where the reader is.
            client.stop_all_replays()
            rows += next(found)[1]
            client.truncate_recording(0, 4 * SEGMENT)
            with pytest.raises(RecordingError, match=f"recording 0.*position={4 * SEGMENT}") as caught:
                rows += sum(each[1] for each in found)
            assert 20 <= rows < COUNT, caught.value
        served.server.close()


@pytest.mark.parametrize("is_remote", [True, False])
def test_a_persistent_subscription_reports_that_its_recording_was_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    monkeypatch.setattr(history, "ROWS_PER_BATCH", 10)
    with MediaDriver.launch() as driver, mainstem.connect(driver.directory) as aeron:
        served = Served(tmp_path, driver)
        record(aeron)
        where: dict[str, Any] = {"recordings": tmp_path}
        if is_remote:
            where = {"recordings": served.url, "options": {"timeout": "30"}}
        with (
            aeron.add_persistent_subscription("aeron:ipc", 1001, **where) as late,
            archive.connect("aeron:ipc", aeron=aeron) as client,
        ):
            received: list[bytes] = []
            wait_for(lambda: received.extend(late.poll_bytes(10)) or received)
            client.truncate_recording(0, 4 * SEGMENT)
            with pytest.raises(RecordingError, match=f"{4 * SEGMENT}"):
                wait_for(lambda: received.extend(late.poll_bytes(10)), progress=lambda: len(received))
            assert received == [payload(number) for number in range(len(received))]
            assert len(received) < COUNT
        served.server.close()


class _Guard:
    def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept | Challenge | Reject:
        return Accept(b"reader") if credentials == b"reader:secret" else Reject()


def test_credentials_and_errors_in_plain_words(tmp_path: Path) -> None:
    with MediaDriver.launch() as driver:
        served = Served(tmp_path / "archive", driver)
        served.server.close()
        with pytest.raises(StoreError, match=r"connect failed for 0\.3 s: connect to the archive"):
            open_recordings(served.url, served.options(timeout="0.3"))
        served.start(authenticator=_Guard())
        with pytest.raises(ArchiveError) as caught:
            open_recordings(served.url, served.options(credentials="reader:wrong"))
        assert caught.value.code is ArchiveErrorCode.AUTHENTICATION_REJECTED
        (tmp_path / "credentials").write_text("reader:secret\n")
        with open_recordings(served.url, served.options(credentials_file=str(tmp_path / "credentials"))) as recordings:
            assert len(recordings) == 0
        with pytest.raises(RecordingError, match="has no recording 3"):
            open_recording(served.url, 3, served.options(credentials="reader:secret"))
        served.server.close()


@pytest.mark.long
def test_a_persistent_subscription_outlasts_its_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ROWS_PER_BATCH", 10)
    with MediaDriver.launch() as driver, mainstem.connect(driver.directory) as aeron:
        served = Served(tmp_path, driver)
        record(aeron)
        options = {"timeout": "0.5"}
        with aeron.add_persistent_subscription("aeron:ipc", 1001, recordings=served.url, options=options) as late:
            received = late.poll_bytes(10)
            served.server.close()
            with pytest.raises(StoreError, match=r"failed for 0\.5 s"):
                wait_for(lambda: received.extend(late.poll_bytes(10)))
            served.start()
            wait_for(lambda: received.extend(late.poll_bytes()) or len(received) == COUNT)
            assert received == [payload(number) for number in range(COUNT)]
        served.server.close()


def test_an_archive_on_another_host_answers_to_the_address_that_reaches_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_archive, "is_local_host", lambda _host: False)
    with open_recordings(served.url.replace("localhost", "127.0.0.1"), served.options()) as recordings:
        assert recordings[0].archive._response == "aeron:udp?endpoint=127.0.0.1:0"  # type: ignore[attr-defined]
        assert next(messages(recordings[0], 0, SEGMENT))[1] == payload(0)
    with pytest.raises(StoreError, match="no route to none"):
        open_recordings("aeron-archive://none.invalid:8010", served.options())


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("aeron-archive://localhost", {}, "must be aeron-archive://HOST:PORT"),
        ("aeron-archive://localhost:8010/tides", {}, "must be aeron-archive://HOST:PORT"),
        ("aeron-archive://localhost:port", {}, "port"),
        ("aeron-archive://me:secret@localhost:8010", {}, "credentials_file"),
        ("aeron-archive://localhost:8010", {"region": "eu"}, "no option 'region'"),
        ("aeron-archive://localhost:8010", {"timeout": "0"}, "timeout must be above 0"),
        ("aeron-archive://localhost:8010", {"control_stream_id": "ten"}, "invalid value"),
        ("aeron-archive://localhost:8010", {"credentials_file": "/none"}, "credentials_file: /none"),
        ("aeron-archive://localhost:8010", {"tail": "tides"}, "no other tail"),
    ],
)
def test_invalid_locations_are_rejected(url: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        open_recordings(url, options)
    assert "secret" not in str(caught.value)


def test_an_archive_is_not_a_store_to_write_to() -> None:
    from mainstem.store import open_store

    with pytest.raises(ConfigurationError, match="only be read"):
        open_store("aeron-archive://localhost:8010")


@pytest.mark.long
def test_the_commands_read_a_running_archive(served: Served) -> None:
    def run(*words: str) -> str:
        line = [sys.executable, "-m", "mainstem", *words, "--store-option", f"aeron_dir={served.driver.directory}"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=STALL_S, check=False)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr
        return done.stdout

    listed = json.loads(run("recordings", "ls", served.url, "--json"))
    assert [(row["recording_id"], row["archive"], row["messages"]) for row in listed] == [
        (0, served.url, None),
        (1, served.url, None),
    ]
    assert "segments: " in run("recordings", "show", served.url)
    run("recordings", "verify", served.url)
    exported = run("export", served.url, "--format", "jsonl", "--recording", "1", "--columns", "position,length")
    assert len(exported.splitlines()) == 10
