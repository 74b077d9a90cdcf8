"""``mainstem ship`` and ``record --ship-to`` as processes: killed at any moment while a recorder keeps running."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support.live_driver import TIMEOUT_S, wait_for
from tests.support.shipping import ManualClock, Station, check_integrity, payloads
from tests.support.waiting import STALL_S

from mainstem import Aeron, MediaDriver
from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.recording import messages, open_recording, open_recordings
from mainstem.recording.shipping.layout import archive_ids
from mainstem.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.system

SENT = [f"tide {number}".encode() * (1 + number % 50) for number in range(3000)]


def ship(directory: Path, url: object, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return running([sys.executable, "-m", "mainstem", "ship", str(directory), str(url), *arguments])


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a process, and kill it if the test fails before it ends."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def seen(location: Path) -> list[bytes]:
    sent: list[bytes] = []
    for reader in open_recordings(location) if archive_ids(open_store(location)) else []:
        with reader:
            sent += [payload for _, payload in messages(reader, reader.start_position, reader.end_position())]
    return sent


class Files(dict[str, bytes]):
    """The files of a store, as ``check_integrity`` reads them."""

    def __init__(self, location: Path) -> None:
        super().__init__(
            {p.relative_to(location).as_posix(): p.read_bytes() for p in location.rglob("*") if p.is_file()}
        )


def check(location: Path) -> None:
    from tests.support.shipping import MemoryStore

    store = MemoryStore(Files(location))
    for archive_id in archive_ids(store):
        check_integrity(store, archive_id)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_repeatedly_killed_shipper_ships_each_message_once(tmp_path: Path, seed: int) -> None:
    rng, location = random.Random(seed), tmp_path / "store"
    station = Station(tmp_path / "recorder", ManualClock(SYSTEM_CLOCK.epoch_ns()))
    for round_number in range(6):
        station.send(payloads(300, seed=round_number, first=len(station.sent)))
        with ship(
            station.directory, location, "--flush-interval", "0s", "--chunk-size", "64k", "--upload-concurrency", "3"
        ) as process:
            assert process.stderr is not None
            assert "shipping" in process.stderr.readline()
            # Wait for a random number of progress lines and then some milliseconds, to kill it anywhere within a round.
            for _ in range(rng.randrange(3)):
                station.send(payloads(100, seed=rng.randrange(1 << 30), first=len(station.sent)))
                process.stderr.readline()
            time.sleep(rng.random() * 0.3)
            process.send_signal(signal.SIGKILL)
        if location.exists() and archive_ids(open_store(location)):
            check(location)
            shipped = seen(location)
            assert shipped == station.sent[: len(shipped)]
    station.stop()
    with ship(station.directory, location, "--once", "--json") as process:
        out, err = process.communicate(timeout=STALL_S)
    assert json.loads(out)["lag_bytes"] == 0, err
    assert seen(location) == station.sent
    check(location)


@pytest.fixture
def publishing(tmp_path: Path) -> Iterator[MediaDriver]:
    with MediaDriver.launch() as driver:
        yield driver


def test_a_recorder_ships_everything_before_it_exits(tmp_path: Path, publishing: MediaDriver) -> None:
    out, location = tmp_path / "recorder", tmp_path / "store"
    command = [
        sys.executable, "-m", "mainstem", "record", "aeron:ipc", "--stream", "1001", "--out", str(out), "--exit-at-end",
        "--dir", publishing.directory, "--ship-to", str(location), "--flush-interval", "1s", "--json",
    ]  # fmt: skip
    with (
        Aeron.connect(publishing.directory) as aeron,
        running(command) as process,
    ):
        with aeron.add_exclusive_publication("aeron:ipc", 1001) as publication:
            wait_for(lambda: publication.is_connected)
            for message in SENT[:1000]:
                publication.send(message, timeout=TIMEOUT_S)
            # The recording is in the store while it is still active.
            wait_for(lambda: len(seen(location)) == 1000)
            for message in SENT[1000:]:
                publication.send(message, timeout=TIMEOUT_S)
        result = json.loads(process.communicate(timeout=STALL_S)[0])
    assert (process.returncode, result["messages"]) == (0, len(SENT))
    assert seen(location) == SENT
    with open_recording(location, 0) as there, open_recording(out, 0) as here:
        assert there.descriptor == here.descriptor


@pytest.mark.long
def test_recordings_of_a_killed_recorder_are_shipped(tmp_path: Path, publishing: MediaDriver) -> None:
    out, location = tmp_path / "recorder", tmp_path / "store"
    command = [
        sys.executable, "-m", "mainstem", "record", "aeron:ipc", "--stream", "1001", "--out", str(out),
        "--dir", publishing.directory, "--ship-to", str(location), "--flush-interval", "3600s",
    ]  # fmt: skip
    with (
        Aeron.connect(publishing.directory) as aeron,
        running(command) as process,
        aeron.add_exclusive_publication("aeron:ipc", 1001) as publication,
    ):
        wait_for(lambda: publication.is_connected)
        for message in SENT[:1000]:
            publication.send(message, timeout=TIMEOUT_S)
        wait_for(lambda: _recorded(out) == 1000)
        process.kill()
    # The shipper sees the end of its input, ships what is left, and exits.
    wait_for(lambda: len(seen(location)) == 1000)
    assert seen(location) == SENT[:1000]


def _recorded(out: Path) -> int:
    if not (out / "0.mainstem-positions").exists():
        return 0
    with open_recording(out, 0) as reader:
        return reader.messages_before(reader.end_position())


def test_a_recorder_does_not_start_with_an_unusable_ship_target(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "mainstem", "record", "bymux://127.0.0.1:0", "--out", str(tmp_path), "--ship-to", "gopher://x",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=STALL_S, check=False)
    assert done.returncode == 1
    assert "gopher" in done.stderr
    assert "--ship-to" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_signal_stops_a_shipper_whose_store_is_unreachable(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.fs")
    station = Station(tmp_path / "recorder", ManualClock(SYSTEM_CLOCK.epoch_ns()))
    station.send(payloads(50))
    station.stop()
    options = {"access_key": "a", "secret_key": "b", "region": "us-east-1", "scheme": "http"}
    arguments = [f"--store-option={name}={value}" for name, value in options.items()]
    arguments += ["--store-option=endpoint_override=127.0.0.1:9"]
    with ship(station.directory, "s3://bucket/tides", *arguments) as process:
        assert process.stderr is not None
        assert "shipping" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=STALL_S)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_metrics_are_served(tmp_path: Path) -> None:
    station = Station(tmp_path / "recorder", ManualClock(SYSTEM_CLOCK.epoch_ns()))
    station.send(payloads(50))
    with ship(
        station.directory, tmp_path / "store", "--metrics-listen", "127.0.0.1:0", "--flush-interval", "0s"
    ) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]

        def page() -> str:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
                text: str = response.read().decode()
                return text

        position = f"}} {station.writer.position}\n"
        wait_for(lambda: "shipping_shipped_position{" in page() and page().count(position) >= 2)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=STALL_S)
    assert process.returncode == 0
