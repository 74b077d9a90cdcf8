"""Behind a real NAT router: the guide's first take fails, its second one works, and the router's counters show why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.nat import CLIENT, SERVER, Nat
from tests.support.waiting import STALL_S

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.system, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
TAKE_1 = (sys.executable, str(ROOT / "examples" / "echo_take1.py"))
TAKE_2 = (sys.executable, "-m", "mainstem", "echo")


@pytest.fixture
def nat() -> Iterator[Nat]:
    with Nat() as made:
        yield made


def ready(server: subprocess.Popen[str], word: str) -> str:
    """Wait until the server prints `word`, and return that line."""
    assert server.stdout is not None
    for line in server.stdout:
        if word in line:
            return line
    raise AssertionError(f"the server ended: {server.wait()}")


def finish(server: subprocess.Popen[str]) -> str:
    server.terminate()
    try:
        return server.communicate(timeout=STALL_S)[0]
    finally:
        if server.poll() is None:
            server.kill()
            server.communicate()


def test_the_guides_first_version_gets_no_response_through_nat(nat: Nat) -> None:
    server = nat.start(nat.server, *TAKE_1, "server", SERVER, "9000", env=ENV)
    try:
        ready(server, "subscription")
        arguments = ("client", CLIENT, "8000", SERVER, "9000", "--numbers", "3", "--interval", "0.2", "--patience", "4")
        client = nat.start(nat.client, *TAKE_1, *arguments, env=ENV)
        said = client.communicate(timeout=STALL_S)[0]
        assert client.returncode == 1, said
        assert "0 of 3 came back" in said
        # The server received the client's packets, from the router's address, but its own to the client's port were blocked.
        assert "client connected: 198.51.100.1:" in ready(server, "client connected")
    finally:
        finish(server)
    counts = nat.counts()
    assert counts["rewritten"] > 0
    assert counts["to the server"] > 0


@pytest.mark.parametrize("encrypted", [False, True])
def test_the_guides_second_version_works_through_nat(nat: Nat, tmp_path: Path, encrypted: bool) -> None:
    serve, ask = [], []
    if encrypted:
        made = subprocess.run(
            [*TAKE_2, "key", str(tmp_path / "key")],
            env=ENV,
            check=True,
            capture_output=True,
            text=True,
            timeout=STALL_S,
        )
        serve, ask = ["--encrypt", str(tmp_path / "key")], ["--encrypt", made.stdout.strip()]
    server = nat.start(nat.server, *TAKE_2, "serve", SERVER, "--insecure", *serve, env=ENV)
    try:
        ready(server, "serving echoes")
        client = nat.start(
            nat.client, *TAKE_2, "client", SERVER, "-n", "5", "-i", "0.1", "--timeout", "20", *ask, env=ENV
        )
        said = client.communicate(timeout=STALL_S)[0]
        assert client.returncode == 0, said
        assert "5 messages came back" in said
        counts = nat.counts()
    finally:
        log = finish(server)
    assert "client 198.51.100.1 joined" in log
    assert counts["rewritten"] >= 4, "two streams each way, twice: introduced, and on the duologue"
    assert counts["to the server"] > 5
    assert counts["answers"] > 5
    assert counts["unasked"] == 0
