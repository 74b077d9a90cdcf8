"""Allocate ports that no other test process on this machine uses: ``free_port()``.

A program that reports its port binds port 0. If both ends of a channel must know the port beforehand, the kernel's choice is no
use, because the kernel can give that port to another process before it is bound. So these ports are below the kernel's ephemeral
range. Each test process owns a slot of them for its lifetime, through the name of an abstract socket, which the kernel gives to
only one process and releases when that process ends. Before a port of the slot is used, the allocator checks that no process has
bound it.

Pages and examples name fixed ports, as their readers type them. ``with_own_ports`` replaces the ports in such a text, so that two
test runs on one machine can follow the same page at once.
"""

from __future__ import annotations

import atexit
import random
import re
import socket
import sys
from pathlib import Path
from typing import Any

SLOT = 1024  # ports: hundreds of tests run before a port is reused, so lingering sockets do no harm
LOWEST = 10_240
KERNEL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def highest_port() -> int:
    """Return the first port that the kernel assigns by itself."""
    return int(KERNEL_RANGE.read_text().split()[0]) if KERNEL_RANGE.exists() else 32_768


_slots: list[PortSlot] = []  # the slots of this process


class PortSlot:
    """The ports of one process."""

    def __init__(self) -> None:
        slots = list(range(LOWEST, highest_port() - SLOT + 1, SLOT))
        random.Random().shuffle(slots)
        for self.first in slots:
            self._owner = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                self._owner.bind(f"\0mainstem-tests-ports-{self.first}")
            except OSError:
                self._owner.close()
                continue
            break
        else:
            raise AssertionError("every slot of ports has an owner: how many test runs are there?")
        atexit.register(self._owner.close)
        self._next = 0
        _slots.append(self)

    def __contains__(self, port: int) -> bool:
        return self.first <= port < self.first + SLOT

    def take(self, count: int) -> int:
        """Return the first of ``count`` consecutive ports that nobody has bound."""
        for _ in range(SLOT):
            if self._next + count > SLOT:
                self._next = 0
            port = self.first + self._next
            self._next += count
            if all(is_free(port + each) for each in range(count)):
                return port
        raise AssertionError(f"no {count} ports in a row are free from {self.first} to {self.first + SLOT}")

    def close(self) -> None:
        _slots.remove(self)
        self._owner.close()


def is_free(port: int) -> bool:
    """Return whether nobody has bound the port, for UDP or TCP."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(
                    socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
                )  # as servers do: the port of a closed connection is free
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


_slot: PortSlot | None = None


def free_port(count: int = 4) -> int:
    """Return the first of ``count`` consecutive ports that nobody else uses."""
    global _slot
    if _slot is None:
        _slot = PortSlot()
    return _slot.take(count)


WRITTEN = re.compile(r"\b20[1-9]\d\d\b")  # the ports that pages and examples name: 20100 to 20999
NEIGHBORS = 20  # ports at most this far apart keep their distance, because a program may count up from one


def own_ports(text: str) -> dict[str, str]:
    """Map each port that a text names to one that nobody else uses."""
    runs: list[list[int]] = []
    for port in sorted({int(found) for found in WRITTEN.findall(text)}):
        if runs and port - runs[-1][-1] <= NEIGHBORS:
            runs[-1].append(port)
        else:
            runs.append([port])
    own = {}
    for run in runs:
        first = free_port(run[-1] - run[0] + NEIGHBORS)
        own |= {str(port): str(first + port - run[0]) for port in run}
    return own


def with_own_ports(text: str, own: dict[str, str] | None = None) -> str:
    """Replace the ports in a text; ``own`` is the result of ``own_ports`` for this text or for one that contains it."""
    ports = own_ports(text) if own is None else own
    return WRITTEN.sub(lambda found: ports[found[0]], text)


def guard_slots() -> None:
    """From now on, refuse to bind ports that may be in another process's slot, such as a port hard-coded in a test."""
    sys.addaudithook(_guard)


def _guard(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.bind":
        return
    _, address = arguments
    port = address[1] if isinstance(address, tuple) else 0
    if LOWEST <= port < highest_port() and not any(port in slot for slot in _slots):
        raise AssertionError(f"port {port} may be another process's: take it from free_port()")
