"""Recordings behind a URL read like those in a directory: every message once, while they grow, or an error."""

from __future__ import annotations

import os
import shutil
import threading
from http.server import SimpleHTTPRequestHandler
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("aiohttp")

from tests.support.extended_recordings import ExtendedRecording
from tests.support.plain_server import plain_server
from tests.support.recording_server import RunningServer
from tests.support.waiting import wait_for
from tests.unit.serve.conftest import Live

from mainstem.errors import RecordingError, StoreError
from mainstem.recording import messages, open_recording, open_recordings
from mainstem.recording.catalog import Catalog
from mainstem.recording.index import index_file
from mainstem.recording.reader import RecordingReader
from mainstem.recording.served_archive import ServedArchive
from mainstem.store.http import HttpStore
from mainstem.store.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    directory = Live(tmp_path / "rec")
    directory.add(2000)
    yield directory
    directory.close()


@pytest.fixture
def server(live: Live) -> Iterator[RunningServer]:
    with RunningServer(live.path) as server:
        yield server


def payloads(location: Path | str) -> list[bytes]:
    with open_recording(location, 0) as reader:
        return [payload for _, payload in messages(reader, reader.start_position, reader.end_position())]


def test_messages_and_times_are_those_of_the_directory(live: Live, server: RunningServer) -> None:
    assert payloads(server.url) == payloads(live.path)
    with open_recording(server.url, 0) as remote, open_recording(live.path, 0) as local:
        assert remote.end_position() == local.end_position() == live.writer.position
        assert remote.start_position == local.start_position
        middle = local.advance(0, local.end_position(), max_messages=777)
        assert remote.advance(0, remote.end_position(), max_messages=777) == middle
        assert remote.recorded_time_ns(middle) == local.recorded_time_ns(middle)
        assert remote.archive.segments(remote.descriptor) == local.archive.segments(local.descriptor)


def test_a_recording_is_read_while_it_grows(live: Live, server: RunningServer) -> None:
    with open_recording(server.url, 0) as reader:
        assert isinstance(reader.archive, ServedArchive)
        before = reader.end_position()
        live.add(500)
        end = reader.end_position()
        assert end == live.writer.position
        assert reader.walk(before, end).messages == 500
        ids = threading.Thread(target=lambda: live.add(1))
        ids.start()
        after = reader.archive.wait(reader.descriptor, end, 30)
        ids.join()
        assert after is not None
        assert after > end


def test_a_catalog_that_has_not_changed_costs_one_short_request(live: Live, server: RunningServer) -> None:
    archive = ServedArchive(HttpStore(server.url))
    first = archive.recordings()
    assert archive.recordings() is first
    wait_for(lambda: server.server.metrics.requests[304] > 0)  # counted when it has been sent
    live.recorder.stop(type(live.stream)(session_id=5).start(live.recorder))
    assert [each.session_id for each in archive.recordings()] == [77, 5]
    assert archive.recorded_positions(archive.recordings()) == [live.writer.position, 0]
    archive.close()


def test_a_purged_segment_is_an_error_that_names_it(live: Live, server: RunningServer) -> None:
    with open_recording(server.url, 0) as reader:
        os.unlink(live.path / "0-0.rec")
        with pytest.raises(RecordingError, match=r"0-0\.rec is missing"):
            reader.walk(0, reader.end_position())
        reader.archive.refresh()
        assert reader.start_position == 65536


def test_a_recreated_directory_is_an_error(tmp_path: Path) -> None:
    live = Live(tmp_path / "rec")
    live.add(2000)
    with RunningServer(live.path) as server:
        archive = ServedArchive(HttpStore(server.url))
        (descriptor,) = archive.recordings()
        live.close()
        shutil.rmtree(live.path)
        anew = Live(live.path, session_id=78)
        anew.add(2000)
        fresh = ServedArchive(HttpStore(server.url))
        for each in (archive, fresh):
            with pytest.raises(StoreError, match="recreated"):
                each.index(descriptor)
            segment = each.segment(descriptor, 0)
            with pytest.raises(StoreError, match="recreated"):
                list(segment.chunks(0, 65536))
            segment.close()
        with pytest.raises(RecordingError, match="recording 0 was replaced"):
            fresh.wait(descriptor, 0, 1.0)  # type: ignore[attr-defined]
        anew.close()
        archive.close()
        fresh.close()


def test_a_plain_server_with_ranges_is_read_by_names(live: Live) -> None:
    """Without lists, segment names are derived from the catalog, and purged segments are never requested."""
    os.unlink(live.path / "0-0.rec")

    class Handler(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def translate_path(self, path: str) -> str:
            return str(live.path / path.lstrip("/"))

        def do_GET(self) -> None:
            field = self.headers.get("Range")
            path = live.path / self.path.lstrip("/")
            if field is None or not path.is_file():
                super().do_GET()
                return
            first, last = field.removeprefix("bytes=").split("-")
            data = path.read_bytes()
            chunk = data[int(first) : int(last) + 1]
            self.send_response(206 if chunk else 416)
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(chunk) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(chunk)))
            self.end_headers()
            self.wfile.write(chunk)

    with plain_server(Handler) as url, open_recording(url, 0) as remote, open_recording(live.path, 0) as local:
        assert remote.start_position == local.start_position == 65536
        end = local.end_position()
        assert remote.end_position() == end
        assert remote.walk(65536, end) == local.walk(65536, end)
        assert remote.archive.recorded_positions([remote.descriptor]) == [end]  # type: ignore[attr-defined]
        remote.archive.close()


def test_a_catalog_with_an_invalid_end_raises(live: Live) -> None:
    catalog = Catalog(live.path)
    catalog.stop(catalog.recordings()[0], 1 << 62, 1_700_000_000_000)
    catalog.close()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def translate_path(self, path: str) -> str:
            return str(live.path / path.lstrip("/"))

        def do_HEAD(self) -> None:  # a server that reports every file as existing
            if not self.path.endswith(".rec"):
                super().do_HEAD()
                return
            self.send_response(200)
            self.send_header("Content-Length", "65536")
            self.end_headers()

    with plain_server(Handler) as url:
        archive = ServedArchive(HttpStore(url))
        with pytest.raises(RecordingError, match="segments do not reach that far"):
            archive.segments(archive.recordings()[0])


def test_a_location_without_recordings_is_an_error(tmp_path: Path) -> None:
    with RunningServer(tmp_path) as server, pytest.raises(RecordingError, match="holds no recordings"):
        open_recordings(server.url)


def test_a_reader_continues_after_the_server_has_restarted(live: Live) -> None:
    """The server stops while a reader is inside a recording, and then restarts: the reader sees each message once."""
    live.add(60_000, size=8)  # more than a reader decodes at once
    expected = payloads(live.path)
    first = RunningServer(live.path)
    first.__enter__()
    port = int(first.url.rpartition(":")[2])
    second = RunningServer(live.path, port=port)
    waits: list[float] = []

    def restart(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            second.__enter__()

    archive = ServedArchive(HttpStore(first.url, retry=Retry(sleep=restart)))
    seen: list[bytes] = []
    reader = RecordingReader(archive, archive.recordings()[0])
    for _, payload in messages(reader, 0, reader.end_position()):
        seen.append(payload)
        if len(seen) == 100:
            first.__exit__()
    assert seen == expected
    assert len(waits) >= 2
    reader.close()
    archive.close()
    second.__exit__()


@pytest.mark.parametrize("takes_over", [False, True], ids=["mainstem", "aeron"])
def test_a_recording_that_is_extended_stays_the_same(tmp_path: Path, takes_over: bool) -> None:
    recording = ExtendedRecording(tmp_path / "rec", is_aeron=False)
    recording.record(77, [b"a%d" % number * 20 for number in range(500)])
    index = index_file(recording.directory, 0)
    first, stale = list(recording.sent), index.read_bytes()
    with RunningServer(recording.directory) as server, open_recording(server.url, 0) as before:
        recording.is_aeron = takes_over
        recording.record(-8, [b"b%d" % number * 20 for number in range(100)], stops=False)
        if takes_over:
            index.write_bytes(stale)  # Aeron Archive does not write it
        assert [payload for _, payload in messages(before, 0, before.end_position())] == [each for _, each in first]
        with open_recordings(server.url) as recordings:
            table = recordings.scan(["session_id", "payload"]).to_arrow()
    assert list(zip(table["session_id"].to_pylist(), table["payload"].to_pylist(), strict=True)) == recording.sent
