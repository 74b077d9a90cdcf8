"""The ports of tests that run concurrently."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import closing, suppress

import pytest
from tests.support.doc_runner import ROOT, blocks
from tests.support.ports import LOWEST, SLOT, WRITTEN, PortSlot, free_port, highest_port, own_ports, with_own_ports


def test_two_processes_never_get_the_same_port() -> None:
    mine = PortSlot()
    code = "from tests.support.ports import PortSlot; print(PortSlot().first, flush=True); input()"
    with closing(mine), subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        first = int(other.stdout.readline())
        other.kill()
    assert abs(first - mine.first) >= SLOT


def test_consecutive_ports_skip_bound_ones() -> None:
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


def test_each_page_gets_its_own_ports_at_the_same_distances() -> None:
    text = 'CONTROL = "127.0.0.1:20140"  # 20141 and 20142; 20000 messages, 120141, 20300\nport=20391'
    own = own_ports(text)
    assert sorted(own) == ["20140", "20141", "20142", "20300", "20391"]
    assert int(own["20141"]) - int(own["20140"]) == int(own["20142"]) - int(own["20141"]) == 1
    assert len(set(own.values())) == 5
    changed = with_own_ports(text, own)
    assert changed == (
        f'CONTROL = "127.0.0.1:{own["20140"]}"  # {own["20141"]} and {own["20142"]}; 20000 messages, 120141, {own["20300"]}\n'
        f"port={own['20391']}"
    )
    assert with_own_ports("no port: 20000") == "no port: 20000"
    assert own_ports(text).values() != own.values()


def test_the_ports_of_pages_and_examples_are_those_that_tests_exchange() -> None:
    """Concurrent runs would share any other ports. Default ports of commands lie below this range, ephemeral ports above it."""
    texts = {path: path.read_text() for path in sorted((ROOT / "examples").rglob("*.py"))}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        texts[page] = "".join(block.code for block in blocks(page.read_text()) if block.language in ("sh", "python"))
    strange = [
        f"{path.relative_to(ROOT)}: {port}"
        for path, text in texts.items()
        for port in re.findall(r"[\w\]]:(\d{5})\b", text)
        if LOWEST <= int(port) < highest_port() and not WRITTEN.fullmatch(port)
    ]
    assert strange == []
