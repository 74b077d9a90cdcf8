"""Aeron Cluster for Java with one node on Mainstem's driver: it elects itself, takes a snapshot, and survives kills."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.support import java
from tests.support.ports import free_port
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]
COUNT = 300


class Node:
    """The only node of a cluster: its folder and ports stay, its process and its driver come and go."""

    def __init__(self, folder: Path, archive: str) -> None:
        self.folder = folder
        self._archive = archive
        self._archive_process: subprocess.Popen[str] | None = None
        ports = [free_port() for _ in range(6)]
        self._ingress, self._log = ports[0], ports[5]
        self._members = ",".join(["0", *(f"localhost:{port}" for port in ports[:5])])
        self.lines: list[str] = []

    def start(self, directory: Path) -> None:
        self.directory = directory
        # The node before was killed, and its marks look active for another ten seconds.
        for mark in self.folder.rglob("*-mark*.dat"):
            mark.unlink()
        self.lines = []
        properties: dict[str, object] = {}
        if self._archive == "mainstem":
            properties["cluster.archive.runs"] = "true"
            self._start_archive(directory)
        self._process = java.start(
            "ClusterNode", directory, self.folder, 0, self._members, self._log, properties=properties
        )
        self._reader = threading.Thread(target=self._read, args=(self.lines,))
        self._reader.start()

    def _start_archive(self, directory: Path) -> None:
        control = self._members.split(",")[5]
        words = ["--dir", str(self.folder / "archive"), "--aeron-dir", str(directory)]
        words += ["--control", f"aeron:udp?endpoint={control}", "--set", "segment_file_length=1m"]
        self._archive_process = process = subprocess.Popen(
            [sys.executable, "-m", "mainstem", "archive", *words], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        assert any("requests on" in line for line in process.stderr)

    def _read(self, lines: list[str]) -> None:
        assert self._process.stdout is not None
        lines.extend(line.rstrip() for line in self._process.stdout)

    def wait_for(self, line: str) -> None:
        try:
            wait_for(lambda: line in self.lines or self._process.poll() is not None, progress=lambda: len(self.lines))
        finally:
            assert line in self.lines, self.lines

    def kill(self) -> None:
        if self._archive_process is not None:
            self._archive_process.kill()
            self._archive_process.communicate()
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def add_up(self, first: int) -> int:
        """Has the cluster add COUNT numbers from ``first`` on; the sum that it replies with at last."""
        ingress = f"0=localhost:{self._ingress}"
        done = java.run("ClusterClient", self.directory, ingress, first, COUNT)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def snapshot(self) -> None:
        done = java.run("io.aeron.cluster.ClusterTool", self.folder / "cluster", "snapshot")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(params=["java", "mainstem"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node whose log is recorded by Java's archive, or by ``mainstem archive``."""
    java.require_java()
    node = Node(tmp_path, request.param)
    yield node
    node.kill()


def test_a_node_goes_on_from_snapshot_and_log_after_it_and_its_driver_are_killed(
    node: Node, start_driver: DriverFactory
) -> None:
    driver = start_driver("mainstem")
    node.start(driver.directory)
    node.wait_for("role LEADER")
    first = node.add_up(1)
    assert first == sum(range(1, 1 + COUNT))
    node.snapshot()
    node.wait_for(f"snapshot of {first}")
    assert node.add_up(1 + COUNT) == sum(range(1, 1 + 2 * COUNT))

    driver.kill()
    node.kill()
    node.start(start_driver("mainstem").directory)
    node.wait_for(f"started with {first}")
    node.wait_for("role LEADER")
    assert node.add_up(1 + 2 * COUNT) == sum(range(1, 1 + 3 * COUNT))
