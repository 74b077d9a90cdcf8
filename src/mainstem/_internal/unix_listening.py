"""Listening Unix sockets: a server never takes over a path that another server listens on, and removes only its own.

The file of a Unix socket outlives its server, so a path in use looks like one that a killed server has left. Connecting to it tells
which it is. A lock on the directory is held during the check, the removal and the binding, since another server might bind in
between.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Anybody who can read the directory can lock it, so wait for the lock for at most a second.
LOCK_ATTEMPTS = 100
LOCK_PAUSE_S = 0.01


class UnixListener:
    """A listening socket at ``path``. Raises OSError if the path is in use, or cannot be used."""

    def __init__(self, path: str | bytes | os.PathLike[str], *, backlog: int) -> None:
        self.path = path = os.fsdecode(path)
        if not path:
            raise OSError(errno.EINVAL, "the path is empty")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._file: tuple[int, int] | None = None
        try:
            self.socket.setblocking(False)
            if path.startswith("\0"):
                # A name in Linux's abstract namespace, without a file.
                self.socket.bind(path)
            else:
                with _locked(os.path.dirname(path) or "."):
                    _remove_dead(path)
                    self.socket.bind(path)
                    self._file = _identity(path)
                    self.socket.listen(backlog)
            self.socket.listen(backlog)
        except BaseException:
            self.close()
            raise

    def remove(self) -> None:
        """Remove the path if it is still this socket's; call this before closing the socket. May be called twice.

        While the socket is open, no other file can have its inode.
        """
        file, self._file = self._file, None
        if file is not None and _identity(self.path) == file:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def close(self) -> None:
        """Remove the path if it is still this socket's, and close the socket. May be called twice."""
        self.remove()
        self.socket.close()


def _remove_dead(path: str) -> None:
    """Remove the socket file of a server that has ended. Raises OSError if the path is something else."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EADDRINUSE, "the path exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            pass
        except FileNotFoundError:
            return
        except BlockingIOError:
            # The server's connection queue is full, so it exists.
            raise _in_use() from None
        else:
            raise _in_use()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _in_use() -> OSError:
    return OSError(errno.EADDRINUSE, "another server is listening there")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Lock a directory, if possible; without the lock, servers that start at the same time cannot detect each other."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        yield
        return
    try:
        for _ in range(LOCK_ATTEMPTS):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(LOCK_PAUSE_S)
            except OSError:
                break  # the file system has no locks
        yield
    finally:
        os.close(fd)
