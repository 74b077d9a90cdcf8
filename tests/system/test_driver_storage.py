"""A small file system that fills up: new logs are refused, the streams that exist are served, and no process dies."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

SETTINGS = {"AERON_COUNTERS_BUFFER_LENGTH": "1m", "AERON_THREADING_MODE": "SHARED"}
PATIENCE_S = 30.0
# Adds streams until the driver refuses one, then writes four terms to each, so that every page of every log is touched; then
# closes one of them and adds another in its place.
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
    for publication, subscription in pairs:
        count = 0
        while count < 500:
            count += publication.offer(bytes(8000)) > 0
            subscription.poll(lambda fragment: None, 10)
    for each in pairs.pop():
        each.close()
    while True:
        try:
            client.add_publication(CHANNEL, 1000)
            break
        except RegistrationError:
            time.sleep(0.1)
print("written")
"""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 24 MiB in memory."""
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


def test_a_full_file_system_refuses_new_logs_and_the_old_ones_can_be_written_to_their_end(mount: Path) -> None:
    driver = launch(mount / "aeron")
    try:
        command = [sys.executable, "-c", CLIENT, str(mount / "aeron")]
        client = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert client.returncode == 0, client.stderr
        first, last = client.stdout.splitlines()
        count, is_storage_space = first.split()
        assert is_storage_space == "True"
        assert 3 <= int(count) <= 6
        assert last == "written"
        assert driver.poll() is None
    finally:
        driver.terminate()
        driver.communicate(timeout=PATIENCE_S)


def test_a_driver_reports_in_one_sentence_that_its_own_files_have_no_room(mount: Path) -> None:
    (mount / "filler").write_bytes(bytes(23 << 20))
    driver = launch(mount / "aeron")
    _, text = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 1
    assert "cnc.dat needs" in text
    assert "Traceback" not in text
