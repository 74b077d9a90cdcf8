"""``aeron-archive://`` in queries of Spark while the archive truncates, purges, stops and deletes: all rows, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.support.changing_recordings import MODES, MOMENTS, Changes, read
from tests.support.ports import free_port
from tests.support.recorded import recorded_position
from tests.support.waiting import STALL_S, wait_for

import mainstem
from mainstem import MediaDriver, archive
from mainstem.archive.server import ArchiveServer
from mainstem.errors import ArchiveError, MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mainstem.archive import Client

pytestmark = [pytest.mark.system, pytest.mark.long]

SEGMENT = 64 << 10
CHANNEL = "aeron:ipc?term-length=64k"
SENT = [number.to_bytes(4, "big") * 300 for number in range(200)]


def without_replays(client: Client, recording_id: int, request: Callable[[], object]) -> None:
    """Make a request that an archive refuses while the recording is replayed."""

    def has_succeeded() -> bool:
        client.stop_all_replays(recording_id)
        try:
            request()
        except ArchiveError:
            return False
        return True

    wait_for(has_succeeded)


CHANGES: dict[str, Callable[[Client, int], object]] = {
    "truncated before what was read": lambda client, key: client.truncate_recording(key, 0),
    "truncated after what was read": lambda client, key: client.truncate_recording(key, 3 * SEGMENT),
    "purged": lambda client, key: without_replays(client, key, lambda: client.purge_segments(key, 3 * SEGMENT)),
    "deleted": lambda client, key: without_replays(client, key, lambda: client.purge_recording(key)),
    "stopped": lambda client, key: client.stop_recording_by_identity(key),
}


def test_a_read_returns_every_row_or_raises(tmp_path: Path) -> None:
    port = free_port()
    control = f"aeron:udp?endpoint=localhost:{port}"
    with (
        MediaDriver.launch() as driver,
        mainstem.connect(driver.directory) as aeron,
        ArchiveServer.launch(tmp_path, driver.directory, control_channel=control, segment_file_length=SEGMENT),
        archive.connect("aeron:ipc", aeron=aeron) as client,
    ):
        # A third of all cases, each mode with each change; the unit tests read local files at all of them.
        cases = [(mode, change, moment) for mode in MODES for change in CHANGES for moment in MOMENTS][::3]
        for recording_id, (mode, change, moment) in enumerate(cases):
            stream_id = 1000 + recording_id
            client.start_recording("aeron:ipc", stream_id, auto_stop=True)
            with aeron.add_exclusive_publication(CHANNEL, stream_id) as publication:
                for payload in SENT:
                    publication.send(payload, timeout=STALL_S)
                wait_for(lambda: recorded_position(client, recording_id) == publication.position)  # noqa: B023
                if change == "stopped":
                    case(
                        client,
                        f"aeron-archive://localhost:{port}",
                        driver.directory,
                        (mode, change, moment),
                        recording_id,
                    )
            if change != "stopped":
                wait_for(lambda: client.stop_position(recording_id) is not None)  # noqa: B023
                case(
                    client, f"aeron-archive://localhost:{port}", driver.directory, (mode, change, moment), recording_id
                )


def case(client: Client, url: str, directory: str, names: tuple[str, str, str], recording_id: int) -> None:
    mode, change, moment = names
    changes = Changes(moment, lambda: CHANGES[change](client, recording_id))
    options: dict[str, Any] = {"aeron_dir": directory, "recordingId": str(recording_id), "minPartitions": "2"}
    try:
        rows = read(url, options, mode, changes)
    except MainstemError:
        assert changes.has_happened, names
        assert change != "stopped", names
        return
    assert changes.has_happened, names
    if mode != "batch" or moment != "offset" or change == "stopped":
        assert rows == SENT, names
