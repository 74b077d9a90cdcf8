"""Connecting to a host that has several addresses, for blocking callers; `eyeballs` explains how."""

from __future__ import annotations

import errno
import math
import os
import selectors
import socket
import time
from collections import deque

from mainstem._internal.clock import timeout_of
from mainstem._internal.eyeballs import ATTEMPT_DELAY_S, HostAddress, interleaved

LONGEST_WAIT_S = 3600.0  # every selector accepts at least this long
IN_PROGRESS = (0, errno.EINPROGRESS)


def connect_socket(host: str, port: int, timeout: float | None) -> socket.socket:
    """Return a TCP socket connected to the first of a host's addresses that accepts, with ``timeout`` as the socket's timeout.

    Raises OSError, and TimeoutError after ``timeout`` seconds. With None or infinity, only the system's own timeout applies.
    """
    timeout = timeout_of(timeout)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    waiting = deque(interleaved([(family, address) for family, _, _, _, address in found]))
    failures: list[tuple[HostAddress, int]] = []
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    with selectors.DefaultSelector() as running:
        try:
            while waiting or running.get_map():
                if waiting:
                    _begin(waiting.popleft(), running, failures)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("timed out")
                pause = min(left, ATTEMPT_DELAY_S if waiting else LONGEST_WAIT_S)
                for key, _ in running.select(pause) if running.get_map() else ():
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    running.unregister(sock)
                    number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if number == 0:
                        sock.settimeout(timeout)
                        return sock
                    sock.close()
                    failures.append((key.data, number))
        finally:
            for key in list(running.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()
    raise _error(failures)


def _begin(address: HostAddress, running: selectors.BaseSelector, failures: list[tuple[HostAddress, int]]) -> None:
    family, where = address
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        failures.append((address, error.errno or errno.EAFNOSUPPORT))
        return
    sock.setblocking(False)
    number = sock.connect_ex(where)
    if number in IN_PROGRESS:
        running.register(sock, selectors.EVENT_WRITE, address)
    else:
        sock.close()
        failures.append((address, number))


def _error(failures: list[tuple[HostAddress, int]]) -> OSError:
    texts = {number: os.strerror(number) for _, number in failures}
    if len(texts) == 1:
        return OSError(*texts.popitem())
    return OSError("; ".join(f"{where[0]}: {os.strerror(number)}" for (_, where), number in failures))
