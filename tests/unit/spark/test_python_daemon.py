"""Workers whose JVM closes the connection end without a traceback. The test is the JVM."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import STALL_S, wait_for

from mainstem.spark.python_daemon import DAEMON, end_quietly
from mainstem.spark.sources.features import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

# Runs tasks of one byte, and reports a lost connection as PySpark's workers do.
WORKER = """
import sys

def main(infile, outfile):
    {imported}
    task = infile.read(1)
    outfile.write(task or b"the connection is lost")
    if not task:
        sys.exit(-1)
"""


@pytest.fixture
def sockets() -> Iterator[str]:
    """A directory with a short path, because the path of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory() as directory:
        yield directory


def test_nothing_is_replaced_while_the_daemon_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    # PySpark 4.1 imports the worker's module before it defines the function.
    daemon = ModuleType("__main__")
    daemon.__spec__ = ModuleSpec(DAEMON, None)
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    end_quietly()
    assert not hasattr(daemon, "worker")


@pytest.mark.skipif(VERSION < (4, 1), reason="the workers of this PySpark use TCP, which fails later")
@pytest.mark.parametrize(
    ("imported", "is_quiet"),
    [("pass", False), ("import mainstem.spark", True)],
    ids=["a worker", "a worker with Mainstem"],
)
def test_a_worker_whose_connection_is_closed_ends_quietly(
    tmp_path: Path, sockets: str, imported: str, is_quiet: bool
) -> None:
    (tmp_path / "pyspark_tasks.py").write_text(WORKER.format(imported=imported))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets,
        "SPARK_REUSE_WORKER": "1",
        # The default of spark.python.daemon.killWorkerOnFlushFailure.
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "pyspark.daemon", "pyspark_tasks"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdout is not None
        (length,) = struct.unpack(">i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(daemon.stdout.read(length))
            (worker,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
            for _ in range(2):
                sock.sendall(b"x")
                assert sock.recv(1) == b"x"
        wait_for(lambda: not Path(f"/proc/{worker}").exists())
        printed = daemon.communicate(timeout=STALL_S)[1].decode()
    # If PySpark itself prints nothing any more, ``end_quietly`` can go.
    assert (printed == "") is is_quiet, printed
    assert is_quiet or "BrokenPipeError" in printed
