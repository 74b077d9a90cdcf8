"""Aeron Cluster for Java on Mainstem's drivers and archives: one node survives kills, three the loss of a follower and a leader."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.support import java
from tests.support.ports import free_port
from tests.support.waiting import wait_for

from mainstem.recording import messages, open_recordings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.conftest import DriverFactory, DriverProcess

pytestmark = [pytest.mark.interop, pytest.mark.long]
COUNT = 300
LOG_STREAM = 100


class Members:
    """The ports of a cluster's nodes: five per node, plus one for its log."""

    def __init__(self, count: int) -> None:
        self.ports = [[free_port() for _ in range(6)] for _ in range(count)]

    def __str__(self) -> str:
        return "|".join(
            ",".join([str(member), *(f"localhost:{port}" for port in ports[:5])])
            for member, ports in enumerate(self.ports)
        )

    @property
    def ingress(self) -> str:
        return ",".join(f"{member}=localhost:{ports[0]}" for member, ports in enumerate(self.ports))


class Node:
    """A cluster node, which keeps its directory and ports across restarts of its process and driver."""

    def __init__(self, root: Path, archive: str, members: Members, member: int = 0) -> None:
        self.root = root
        self._archive = archive
        self._archive_process: subprocess.Popen[str] | None = None
        self._member, self._members = member, members
        self._timeout_s = 5 if len(members.ports) == 1 else 10
        self.lines: list[str] = []

    def start(self, driver: DriverProcess) -> None:
        self.driver = driver
        self.directory = directory = driver.directory
        # The previous process was killed, and its marks look active for another ten seconds.
        for mark in self.root.rglob("*-mark*.dat"):
            mark.unlink()
        self.lines = []
        properties: dict[str, object] = {"cluster.timeout": self._timeout_s}
        if self._archive == "mainstem":
            properties["cluster.archive.runs"] = "true"
            self._start_archive(directory)
        self._process = java.start(
            "ClusterNode",
            directory,
            self.root,
            self._member,
            self._members,
            self._members.ports[self._member][5],
            properties=properties,
        )
        self._reader = threading.Thread(target=self._read, args=(self.lines,))
        self._reader.start()

    def _start_archive(self, directory: Path) -> None:
        control = f"localhost:{self._members.ports[self._member][4]}"
        words = ["--archive-dir", str(self.root / "archive"), "--dir", str(directory)]
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

    def kill_with_driver(self) -> None:
        self.driver.kill()
        self.kill()

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
        """Have the cluster add COUNT numbers starting at ``first``, and return the sum from its response."""
        done = java.run("ClusterClient", self.directory, self._members.ingress, first, COUNT)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def snapshot(self) -> None:
        done = java.run("io.aeron.cluster.ClusterTool", self.root / "cluster", "snapshot")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(params=["java", "mainstem"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """Create a node whose log is recorded by Java's archive or by ``mainstem archive``."""
    java.require_java()
    node = Node(tmp_path, request.param, Members(1))
    yield node
    node.kill()


def test_a_killed_node_resumes_from_snapshot_and_log(node: Node, start_driver: DriverFactory) -> None:
    node.start(start_driver("mainstem"))
    node.wait_for("role LEADER")
    first = node.add_up(1)
    assert first == sum(range(1, 1 + COUNT))
    node.snapshot()
    node.wait_for(f"snapshot of {first}")
    assert node.add_up(1 + COUNT) == sum(range(1, 1 + 2 * COUNT))

    node.kill_with_driver()
    node.start(start_driver("mainstem"))
    node.wait_for(f"started with {first}")
    node.wait_for("role LEADER")
    assert node.add_up(1 + 2 * COUNT) == sum(range(1, 1 + 3 * COUNT))


def recorded_log(node: Node) -> bytes:
    """Return what a node's archive has recorded of the cluster's log, without the frame headers of its sessions."""
    with open_recordings(node.root / "archive") as recordings:
        logs = [reader for reader in recordings if reader.descriptor.stream_id == LOG_STREAM]
        return b"".join(
            data
            for reader in sorted(logs, key=lambda each: each.start_position)
            for _, data in messages(reader, reader.start_position, reader.end_position())
        )


@pytest.fixture
def nodes(tmp_path: Path, start_driver: DriverFactory) -> Iterator[list[Node]]:
    """Start three nodes, each with its own driver and archive."""
    java.require_java()
    members = Members(3)
    nodes = [Node(tmp_path / str(member), "mainstem", members, member) for member in range(3)]
    started = []
    try:
        for node in nodes:
            node.root.mkdir()
            node.start(start_driver("mainstem"))
            started.append(node)
        yield nodes
    finally:
        for node in started:
            node.kill()


def leader_of(nodes: list[Node]) -> Node:
    """Return the first node that becomes the leader."""
    wait_for(
        lambda: any("role LEADER" in node.lines for node in nodes),
        progress=lambda: [len(node.lines) for node in nodes],
    )
    return next(node for node in nodes if "role LEADER" in node.lines)


def check_logs(nodes: list[Node]) -> None:
    """Check that all archives hold the same log, whoever wrote it and however it arrived."""
    wait_for(lambda: len({recorded_log(node) for node in nodes}) == 1)
    assert len(recorded_log(nodes[0])) > 3 * COUNT * 8


def test_three_nodes_record_one_log_and_a_follower_that_was_killed_catches_up(
    nodes: list[Node], start_driver: DriverFactory
) -> None:
    leader = leader_of(nodes)
    assert leader.add_up(1) == sum(range(1, 1 + COUNT))
    follower = next(node for node in nodes if node is not leader)
    follower.kill_with_driver()
    assert leader.add_up(1 + COUNT) == sum(range(1, 1 + 2 * COUNT))
    follower.start(start_driver("mainstem"))
    assert leader.add_up(1 + 2 * COUNT) == sum(range(1, 1 + 3 * COUNT))
    check_logs(nodes)


def test_two_nodes_elect_another_leader_when_theirs_is_killed_and_it_catches_up(
    nodes: list[Node], start_driver: DriverFactory
) -> None:
    first = leader_of(nodes)
    assert first.add_up(1) == sum(range(1, 1 + COUNT))
    first.kill_with_driver()
    second = leader_of([node for node in nodes if node is not first])
    assert second.add_up(1 + COUNT) == sum(range(1, 1 + 2 * COUNT))
    first.start(start_driver("mainstem"))
    assert second.add_up(1 + 2 * COUNT) == sum(range(1, 1 + 3 * COUNT))
    check_logs(nodes)
    assert "role LEADER" not in first.lines
