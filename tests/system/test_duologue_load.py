"""Many clients at once, half of which are killed: the others notice nothing, and everything the dead ones held is released.

The full version, 100 clients for a minute with one process each, runs with ``MAINSTEM_FULL_LOAD=1``. All clients share one
driver, as programs on one machine do. A hundred drivers would only measure the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pytest
from tests.support.duologues import echo, in_use
from tests.support.live_driver import wait_for
from tests.support.ports import free_port

from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.duologue import Settings, serve
from mainstem.duologue.settings import reserved_sessions

pytestmark = [pytest.mark.system, pytest.mark.long]

FULL = bool(os.environ.get("MAINSTEM_FULL_LOAD"))
PROCESSES, SECONDS = (100, 60.0) if FULL else (10, 5.0)
INTERVAL = 0.25
PAUSE = 0.02 if FULL else 0.005  # how often a client polls for its response; round trips are never shorter
STARTING = 10  # number of processes that start at once
LIVENESS_S = 5  # when drivers give up on a silent client; processes here may wait longer than 2 s for a CPU
PROGRAM = Path(__file__).parent / "programs" / "duologue_clients.py"
ROOT = Path(__file__).resolve().parents[2]


def start(directory: str, port: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), directory, "127.0.0.1", str(port), "1", str(INTERVAL), str(PAUSE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def test_killed_clients_release_everything_without_affecting_others() -> None:
    port = free_port(128)
    total = PROCESSES
    settings = Settings(
        base_port=port + 2,
        max_clients=total,
        max_clients_per_address=total,
        join_timeout=60.0,
        hello_rate=1_000.0,
    )
    timings = {"image_liveness_timeout_ns": f"{LIVENESS_S}s", "client_liveness_timeout_ns": f"{LIVENESS_S}s"}
    with (
        MediaDriver.launch(**{**settings.server_driver_settings(), **timings}) as near,
        MediaDriver.launch(**reserved_sessions(), term_buffer_length=1 << 16, **timings) as far,
        serve(echo, "127.0.0.1", port, settings=settings, directory=near.directory) as server,
    ):
        clients: list[subprocess.Popen[str]] = []
        try:
            for first in range(0, PROCESSES, STARTING):
                few = [start(far.directory, port) for _ in range(min(STARTING, PROCESSES - first))]
                clients += few
                for client in few:
                    assert client.stdout is not None
                    assert client.stdout.readline() == "ready\n"

            def held() -> tuple[int, int]:
                return in_use(server)

            assert held() == (2 * total, total)
            time.sleep(SECONDS)
            killed, staying = clients[::2], clients[1::2]
            for client in killed:
                client.kill()
            left = len(staying)
            began = time.monotonic()
            # The killed client's own driver notices, then its stream drains and lingers, then the server's driver notices.
            wait_for(lambda: held() == (2 * left, left))
            took = time.monotonic() - began
            time.sleep(2.0)

            for client in staying:
                assert client.stdin is not None
                client.stdin.close()
            reports = [json.loads(client.stdout.readline()) for client in staying if client.stdout is not None]
        finally:
            for client in clients:
                client.kill()
                client.wait()
                for pipe in (client.stdin, client.stdout):
                    if pipe is not None:
                        pipe.close()
        assert [report["errors"] for report in reports] == [[]] * len(staying)
        assert [report["unanswered"] for report in reports] == [0] * len(staying)
        assert min(min(report["answered"]) for report in reports) > 2
        answered = sum(sum(report["answered"]) for report in reports)
        print(
            f"{total} clients for {SECONDS:g} s; free again after {took:.1f} s; {left} clients had {answered} answers,"
            f" round trip median {median(r['median_s'] for r in reports) * 1e3:.1f} ms,"
            f" p99 {median(r['p99_s'] for r in reports) * 1e3:.0f} ms (of the worst client"
            f" {max(r['p99_s'] for r in reports) * 1e3:.0f} ms), longest {max(r['longest_s'] for r in reports) * 1e3:.0f} ms"
        )
        wait_for(lambda: held() == (0, 0))
