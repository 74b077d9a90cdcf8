"""A standalone cluster whose workers share no directory with the recorder or with one another, only the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("aiohttp")

from tests.spark.cluster import EXECUTOR, HOME, descendants, kill_one
from tests.spark.separate_hosts import PORT
from tests.support.network_namespaces import Room, Rooms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.spark, pytest.mark.system, pytest.mark.long, pytest.mark.timeout(1500)]
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600.0
# Each host has its own.
PYTHON = "/tmp/python"
TOKEN = "0123456789abcdef-token"


@pytest.fixture
def rooms() -> Iterator[Rooms]:
    with Rooms("driver", "worker", "worker", "station") as rooms:
        yield rooms


class Talk:
    """A program in a room: it takes lines of input, and its output is kept."""

    def __init__(self, room: Room, log: Path, *command: str) -> None:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        env = {"PYTHONPATH": paths, "SPARK_LOCAL_IP": room.address, "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
        env |= {"PYSPARK_PYTHON": PYTHON, "PYSPARK_DRIVER_PYTHON": PYTHON}
        self._log = log
        with log.open("wb") as errors:
            self.process = room.start(
                [sys.executable, "-m", "tests.spark.separate_hosts", *command],
                env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self.lines: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def say(self, number: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()

    def wait(self, condition: Callable[[Any], bool]) -> Any:
        """Wait for a line that meets the condition, and return the first one."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (lines := [line for line in self.lines if condition(line)]):
            ended = self.process.poll()
            assert ended is None, f"ended with {ended}: {self._log.read_text(errors='replace')[-3000:]}"
            assert time.monotonic() < deadline, f"{self.lines[-3:]}: {self._log.read_text(errors='replace')[-3000:]}"
            time.sleep(0.1)
        return lines[0]


def spark_class(room: Room, log: Path, name: str, *arguments: str) -> subprocess.Popen[str]:
    env = dict.fromkeys(("PYTHONPATH",), "") | {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": room.address,
        "HOME": "/tmp",
    }
    env |= {"PYSPARK_PYTHON": PYTHON, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", room.address]
    with log.open("ab") as file:
        return room.start([*command, "--webui-port", "0", *arguments], env=env, log=file)


def test_a_query_on_machines_that_share_no_directory_has_each_message_once(rooms: Rooms, tmp_path: Path) -> None:
    driver, one, two, recorder = rooms.rooms
    assert rooms.shared_directories() == set()
    subprocess.run(
        [sys.executable, "-m", "mainstem", "cert", str(tmp_path / "certs"), "--name", recorder.address], check=True
    )
    certs = {path.name: path.read_text() for path in (tmp_path / "certs").iterdir()}
    for name, room in (
        ("ca.pem", driver),
        ("ca.pem", one),
        ("ca.pem", two),
        ("cert.pem", recorder),
        ("key.pem", recorder),
    ):
        room.shell(f"umask 077; cat > /tmp/{name}", data=certs[name])
    for room in (driver, recorder):
        room.shell("umask 077; cat > /tmp/token", data=TOKEN)
    # Omit Spark's own path, which contains pyspark in an archive that is recompiled at each start.
    for room in (driver, one, two):
        script = f'#!/bin/sh\nPYTHONPATH={ROOT / "src"}:{ROOT} exec {sys.executable} "$@"\n'
        room.shell(f"cat > {PYTHON}; chmod +x {PYTHON}", data=script)
    station = Talk(recorder, tmp_path / "station.log", "station", "/tmp", recorder.address)
    station.say(5000)
    master = f"spark://{driver.address}:7077"
    log = tmp_path / "cluster.log"
    processes = [spark_class(driver, log, "master.Master", "--port", "7077")]
    for room in (one, two):
        flags = ["-d", "/tmp/work", "-c", "1", "-m", "1200m", master]
        processes.append(spark_class(room, log, "worker.Worker", *flags))
    station.wait(lambda count: count == 5000)
    query = Talk(
        driver, tmp_path / "query.log", "query", "/tmp", master, driver.address, f"https://{recorder.address}:{PORT}"
    )
    # The query program monitors its query while it waits for this many rows.
    query.say(40_000)
    query.wait(lambda line: line.get("rows_in_all", 0) > 0)
    pids = [process.pid for process in processes]

    def executors() -> int:
        return sum(EXECUTOR in line for pid in pids[1:] for line in descendants(pid).values())

    deadline = time.monotonic() + TIMEOUT_S
    while executors() < 2:
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)
    station.say(30_000)
    query.wait(lambda line: line.get("rows_in_all", 0) > 6000)
    assert kill_one(pids) == 2
    station.wait(lambda count: count == 30_000)
    station.say(40_000)
    result = query.wait(lambda line: "each_once" in line)
    assert result["each_once"], result
    assert result["messages"] == 40_000
    assert executors() == 1
