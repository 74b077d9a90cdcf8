"""The ports of tests that run at the same time."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import closing, suppress

import pytest
from tests.support.ports import SLOT, PortSlot, free_port


def test_two_processes_never_get_the_same_port() -> None:
    mine = PortSlot()
    code = "from tests.support.ports import PortSlot; print(PortSlot().first, flush=True); input()"
    with closing(mine), subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        first = int(other.stdout.readline())
        other.kill()
    assert abs(first - mine.first) >= SLOT


def test_ports_in_a_row_leave_out_what_somebody_has_bound() -> None:
    with closing(PortSlot()) as ports, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somebody:
        bound = next(port for port in range(ports.first + 2, ports.first + SLOT) if _binds(somebody, port))
        taken = [ports.take(4) for _ in range(SLOT)]
    assert not {port + each for port in taken for each in range(4)} & {bound}
    assert min(taken) >= ports.first
    assert max(taken) + 4 <= ports.first + SLOT


def test_the_same_process_gets_another_port_each_time() -> None:
    assert len({free_port() for _ in range(100)}) == 100


def test_a_number_in_a_test_is_refused() -> None:
    with closing(PortSlot()) as ports, socket.socket() as server:
        server.bind(("127.0.0.1", ports.take(1)))
    with socket.socket() as server, pytest.raises(AssertionError, match="free_port"):
        server.bind(("127.0.0.1", ports.first))


def _binds(endpoint: socket.socket, port: int) -> bool:
    with suppress(OSError):
        endpoint.bind(("127.0.0.1", port))
        return True
    return False
