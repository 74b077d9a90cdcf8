"""The responses of a recording server: lists, file ranges, waits; consistent while a recorder writes."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.http_peer import connect, get
from tests.support.streams import Stream
from tests.support.waiting import soon, until
from tests.unit.serve.conftest import Live

from mainstem.recording.archive import IDENTITY_FILE
from mainstem.recording.catalog import read_catalog
from mainstem.recording.segments import segment_name
from mainstem.serve.access import Access
from mainstem.serve.limits import Limits
from mainstem.serve.recording_server import RecordingServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKEN = "0123456789abcdef-token"


@pytest.fixture
async def server(live: Live) -> AsyncIterator[RecordingServer]:
    async with RecordingServer(live.path, "127.0.0.1", 0) as server:
        yield server


async def test_the_list_has_the_catalog_and_the_recorded_positions(live: Live, server: RecordingServer) -> None:
    position = live.add(10)
    response = await get(server.url, "/v1/recordings")
    (row,) = response.json["recordings"]
    (descriptor,) = read_catalog(live.path)
    assert response.status == 200
    assert row["recorded_position"] == position
    assert row["identity"] == str(descriptor.identity)
    assert (row["recording_id"], row["stop_position"], row["term_buffer_length"]) == (0, -1, 65536)
    assert response.json["next"] is None


async def test_a_list_has_pages(live: Live, server: RecordingServer) -> None:
    for session in range(5):
        live.recorder.stop(Stream(session_id=session + 100).start(live.recorder))
    ids, first = [], 0
    while first is not None:
        page = (await get(server.url, f"/v1/recordings?from={first}&limit=2")).json
        assert len(page["recordings"]) <= 2
        ids += [row["recording_id"] for row in page["recordings"]]
        first = page["next"]
    assert ids == [0, 1, 2, 3, 4, 5]
    active = (await get(server.url, "/v1/recordings?active=1")).json
    assert [row["recording_id"] for row in active["recordings"]] == [0]


async def test_files_are_listed_by_prefix_and_page(live: Live, server: RecordingServer) -> None:
    live.add(2000)
    (live.path / "secret.txt").write_text("no")
    names, after = [], ""
    while after is not None:
        page = (await get(server.url, f"/v1/files?prefix=0-&limit=1&from={after}")).json
        names += [(row[0], row[1]) for row in page["files"]]
        after = page["next"]
    assert sorted(names) == sorted((path.name, path.stat().st_size) for path in live.path.glob("0-*.rec"))
    everything = (await get(server.url, "/v1/files")).json["files"]
    assert {row[0] for row in everything} == {path.name for path in live.path.iterdir()} - {
        "secret.txt",
        "mainstem-recorder.lock",
        "archive-mark.dat",
    }


async def test_ranges_have_the_bytes_of_the_file(live: Live, server: RecordingServer) -> None:
    position = live.add(200)
    data = (live.path / "0-0.rec").read_bytes()
    peer = await connect(server.url)
    for field, start, end in (
        ("0-99", 0, 100),
        ("64-", 64, len(data)),
        ("-32", len(data) - 32, len(data)),
        ("7-7", 7, 8),
    ):
        response = await peer.get("/0-0.rec", Range=f"bytes={field}")
        assert response.status == 206
        assert response.body == data[start:end]
        assert response.headers["content-range"] == f"bytes {start}-{end - 1}/{len(data)}"
        assert response.headers["mainstem-recorded-position"] == str(position)
    whole = await peer.get("/0-0.rec")
    assert (whole.status, whole.body) == (200, data)
    head = await peer.get("/0-0.rec", method="HEAD")
    assert (head.status, int(head.headers["content-length"])) == (200, len(data))
    assert (await peer.get("/0.mainstem-positions")).body == (live.path / "0.mainstem-positions").read_bytes()
    assert (await peer.get("/archive.catalog")).body == (live.path / "archive.catalog").read_bytes()
    await peer.close()


async def test_a_wait_ends_when_the_recorded_position_passes(live: Live, server: RecordingServer) -> None:
    position = live.add(1)
    waiting = asyncio.create_task(get(server.url, f"/v1/recordings/0?after={position}&wait=40"))
    await until(lambda: server.metrics.waits)
    assert not waiting.done()
    later = live.add(1)
    assert (await waiting).json["recorded_position"] == later


async def test_a_wait_ends_when_the_recording_stops(live: Live, server: RecordingServer) -> None:
    position = live.add(1)
    waiting = asyncio.create_task(get(server.url, f"/v1/recordings/0?after={position}&wait=40"))
    await until(lambda: server.metrics.waits)
    live.recorder.stop(live.writer)
    assert (await waiting).json["stop_position"] == position
    again = await get(server.url, f"/v1/recordings/0?after={position}&wait=40")
    assert again.json["stop_position"] == position


async def test_a_wait_ends_with_its_time(live: Live, server: RecordingServer) -> None:
    position = live.add(1)
    response = await get(server.url, f"/v1/recordings/0?after={position}&wait=0.05")
    assert (response.status, response.json["recorded_position"]) == (200, position)


async def test_the_list_waits_for_a_new_recording(live: Live, server: RecordingServer) -> None:
    version = (await get(server.url, "/v1/recordings")).json["version"]
    assert (await get(server.url, f"/v1/recordings?after={version}&wait=0.05")).status == 304
    waiting = asyncio.create_task(get(server.url, f"/v1/recordings?after={version}&wait=40"))
    await until(lambda: server.metrics.waits)
    Stream(session_id=5).start(live.recorder)
    response = await waiting
    assert [row["session_id"] for row in response.json["recordings"]] == [77, 5]
    assert response.json["version"] != version


async def test_waits_end_when_the_server_closes(live: Live) -> None:
    async with RecordingServer(live.path, "127.0.0.1", 0) as server:
        position = live.add(1)
        waiting = asyncio.create_task(get(server.url, f"/v1/recordings/0?after={position}&wait=40"))
        await until(lambda: server.metrics.waits)
    assert (await waiting).json["recorded_position"] == position


async def test_connections_without_a_request_do_not_hold_the_close_up(live: Live) -> None:
    server = RecordingServer(live.path, "127.0.0.1", 0, limits=Limits(close_seconds=3600))
    await server.start()
    peer = await connect(server.url)
    assert (await peer.get("/v1/recordings")).status == 200
    await soon(server.close())


async def test_the_identity_of_the_archive_is_a_file_of_it(live: Live, server: RecordingServer) -> None:
    assert (await get(server.url, f"/{IDENTITY_FILE}")).status == 404
    (live.path / IDENTITY_FILE).write_text('{"id": "x"}')
    assert (await get(server.url, f"/{IDENTITY_FILE}")).json == {"id": "x"}


async def test_a_peer_that_goes_ends_its_wait(live: Live, server: RecordingServer) -> None:
    peer = await connect(server.url)
    await peer.send(b"GET /v1/recordings/0?after=0&wait=40 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await until(lambda: server.metrics.waits)
    peer.writer.transport.abort()
    await until(lambda: not (server.metrics.waits or server.metrics.connections))


async def test_a_purged_segment_gets_a_404_that_says_so(live: Live, server: RecordingServer) -> None:
    live.add(2000)
    os.unlink(live.path / "0-0.rec")
    response = await get(server.url, "/0-0.rec")
    assert response.status == 404
    assert "0-0.rec" in response.json["error"]
    assert str(live.path) not in response.json["error"]


async def test_a_recreated_directory_has_other_tags(tmp_path: Path) -> None:
    live = Live(tmp_path / "rec")
    live.add(10)
    async with RecordingServer(live.path, "127.0.0.1", 0) as server:
        peer = await connect(server.url)
        tags = {name: (await peer.get(f"/{name}")).headers["etag"] for name in ("0-0.rec", "0.mainstem-positions")}
        live.add(10)
        for name, tag in tags.items():
            assert (await peer.get(f"/{name}", If_Match=tag)).status == 200, "a growing recording is the same one"
        live.close()
        shutil.rmtree(live.path)
        anew = Live(live.path, session_id=78)
        anew.add(10)
        for name, tag in tags.items():
            assert (await peer.get(f"/{name}", If_Match=tag)).status == 412
        assert (await peer.get("/v1/recordings")).json["recordings"][0]["session_id"] == 78
        await peer.close()
        anew.close()


async def test_recorded_positions_never_pass_the_bytes_that_are_sent(live: Live, server: RecordingServer) -> None:
    """A recorder writes while the test reads the list and then the segments."""
    stopped = asyncio.Event()

    async def write() -> None:
        while not stopped.is_set():
            live.add(20)
            await asyncio.sleep(0)

    writing = asyncio.create_task(write())
    peer = await connect(server.url)
    for _ in range(30):
        end = (await peer.get("/v1/recordings")).json["recordings"][0]["recorded_position"]
        base = max(end - 1, 0) // 65536 * 65536
        data = (await peer.get(f"/{segment_name(0, base)}", Range=f"bytes=0-{max(end - base - 1, 0)}")).body
        at = 0
        while base + at < end:
            length = int.from_bytes(data[at : at + 4], "little")
            assert length > 0, f"no frame at {base + at}, recorded up to {end}"
            at += (length + 31) & ~31
    stopped.set()
    await writing
    await peer.close()


async def test_a_directory_without_recordings_is_404_until_there_are_some(tmp_path: Path) -> None:
    (tmp_path / "rec").mkdir()
    async with RecordingServer(tmp_path / "rec", "127.0.0.1", 0) as server:
        assert (await get(server.url, "/v1/recordings")).status == 404
        assert (await get(server.url, "/archive.catalog")).status == 404
        live = Live(tmp_path / "rec")
        assert len((await get(server.url, "/v1/recordings")).json["recordings"]) == 1
        live.close()


async def test_a_damaged_catalog_is_an_error_without_its_path(live: Live, server: RecordingServer) -> None:
    (live.path / "archive.catalog").write_bytes(b"\xff" * 100)
    response = await get(server.url, "/v1/recordings")
    assert response.status == 500
    assert str(live.path) not in response.json["error"]


async def test_a_catalog_that_has_not_changed_is_not_sent_again(live: Live, server: RecordingServer) -> None:
    tag = (await get(server.url, "/archive.catalog")).headers["etag"]
    response = await get(server.url, "/archive.catalog", If_None_Match=tag)
    assert (response.status, response.body) == (304, b"")
    live.recorder.stop(live.writer)
    assert (await get(server.url, "/archive.catalog", If_None_Match=tag)).status == 200


async def test_the_metrics_count_requests_and_bytes(live: Live) -> None:
    async with RecordingServer(live.path, "127.0.0.1", 0, access=Access((TOKEN,))) as server:
        await get(server.url, "/v1/recordings")
        text = (await get(server.url, "/metrics", Authorization=f"Bearer {TOKEN}")).body.decode()
        assert 'mainstem_serve_requests_total{status="401"} 1' in text
        assert "mainstem_serve_connections 1" in text


async def test_limits_can_be_replaced() -> None:
    assert replace(Limits(), bytes_in_flight=1).transfers == 1
