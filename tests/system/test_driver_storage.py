"""A small file system fills up: the driver refuses new logs, still serves existing streams, and no process dies."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.ports import free_port
from tests.support.waiting import STALL_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.system

SETTINGS = {"AERON_COUNTERS_BUFFER_LENGTH": "1m", "AERON_THREADING_MODE": "SHARED"}
TIMEOUT_S = STALL_S
# Adds streams until the driver refuses one, and writes more to them than the file system can hold. Then closes all but two and
# writes four terms to each of those, which touches every page of their logs, and adds another stream.
CLIENT = """
import sys, time
from mainstem import Aeron
from mainstem.errors import RegistrationError
CHANNEL = "aeron:ipc?term-length=1m|linger=0s"
with Aeron.connect(sys.argv[1]) as client:
    pairs = []
    try:
        while len(pairs) < 100:
            number = len(pairs)
            pairs.append((client.add_publication(CHANNEL, number), client.add_subscription(CHANNEL, number)))
    except RegistrationError as error:
        print(len(pairs), "STORAGE_SPACE" in str(error) or error.code == 12, flush=True)
    for _ in range(400):
        for publication, subscription in pairs:
            publication.offer(bytes(8000))
            subscription.poll(lambda fragment: None, 10)
    while len(pairs) > 2:
        for each in pairs.pop():
            each.close()
    for publication, subscription in pairs:
        count = 0
        while count < 500:
            count += publication.offer(bytes(8000)) > 0
            subscription.poll(lambda fragment: None, 10)
    while True:
        try:
            client.add_publication(CHANNEL, 1000)
            break
        except RegistrationError:
            time.sleep(0.1)
print("written")
"""
# Adds a stream and waits for a line on standard input, by which time the file system is full. Writes until the driver reports that
# the stream is stalled, waits for another line, by which time space is available again, and writes four terms.
HELD_BACK = """
import sys
from mainstem import Aeron
from mainstem.aeron.cnc import CncFile
from mainstem.aeron.error_log import read_errors
from mainstem.aeron.files import MappedFiles
directory, channel, kind = sys.argv[1:]
count = 0
with Aeron.connect(directory) as client:
    errors = CncFile.map(MappedFiles(), directory).error_log
    subscription = client.add_subscription(channel, 1)
    publication = getattr(client, "add_" + kind)(channel, 1)

    def write() -> None:
        global count
        count += publication.offer(bytes(8000)) > 0
        subscription.poll(lambda fragment: None, 10)

    while not count:
        write()
    print("connected", flush=True)
    input()
    while not any("the stream waits" in error.text for error in read_errors(errors)):
        write()
    before, tries = count, 0
    while tries < 1000:
        tries += 1
        write()
    print("held", count * 8000, flush=True)
    input()
    while count < 600:
        write()
print("written", flush=True)
"""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """Mount an empty 24 MiB file system in memory."""
    path = tmp_path / "mount"
    path.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "none", path], check=False, capture_output=True
    ).returncode:
        pytest.skip("only root can mount a file system")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def launch(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mainstem", "driver", "--dir", str(directory)]
    return subprocess.Popen(
        command, env={**os.environ, **SETTINGS}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.long
def test_a_full_file_system_refuses_new_logs_and_stalls_old_ones(mount: Path) -> None:
    driver = launch(mount / "aeron")
    try:
        command = [sys.executable, "-c", CLIENT, str(mount / "aeron")]
        client = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert client.returncode == 0, client.stderr
        first, last = client.stdout.splitlines()
        count, is_storage_space = first.split()
        assert is_storage_space == "True"
        assert 8 <= int(count) <= 40, "a sparse log counts with what it needs to begin"
        assert last == "written"
        assert driver.poll() is None
    finally:
        driver.terminate()
        driver.communicate(timeout=TIMEOUT_S)


def test_a_driver_without_disk_space_reports_it_in_one_sentence(mount: Path) -> None:
    (mount / "filler").write_bytes(bytes(23 << 20))
    driver = launch(mount / "aeron")
    _, text = driver.communicate(timeout=TIMEOUT_S)
    assert driver.returncode == 1
    assert "cnc.dat needs" in text
    assert "Traceback" not in text


@pytest.mark.long
@pytest.mark.parametrize("kind", ["publication", "exclusive_publication"])
@pytest.mark.parametrize(
    "channel",
    ["aeron:ipc?", "aeron:udp?endpoint=localhost:{port}|", "aeron:ipc?term-offset=4128|init-term-id=1|term-id=1|"],
)
def test_a_sparse_log_waits_while_another_program_fills_the_file_system(mount: Path, channel: str, kind: str) -> None:
    driver = launch(mount / "aeron")
    channel = channel.format(port=free_port()) + "term-length=1m|linger=0s"
    command = [sys.executable, "-c", HELD_BACK, str(mount / "aeron"), channel, kind]
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        ) as client:
            try:
                assert client.stdin
                assert client.stdout
                assert client.stderr
                line = client.stdout.readline()
                assert line == "connected\n", (client.wait(TIMEOUT_S), client.stderr.read())
                fill(mount / "filler")
                client.stdin.write("\n")
                held, _, length = client.stdout.readline().partition(" ")
                assert held == "held", (client.wait(TIMEOUT_S), client.stderr.read())
                assert int(length) < 3 << 20
                (mount / "filler").unlink()
                client.stdin.write("\n")
                assert client.stdout.readline() == "written\n"
                assert client.wait(TIMEOUT_S) == 0
            finally:
                client.kill()
        assert driver.poll() is None
    finally:
        driver.terminate()
        driver.communicate(timeout=TIMEOUT_S)


def fill(path: Path) -> None:
    """Use up every block of the file system."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
