"""Unix sockets that listen: a path that a server listens on is never taken over, and only the own one is removed.

The file of a Unix socket outlives its server, so that a path in use and one that a killed server has left look alike. Connecting
tells them apart. The check, the removal and the binding hold a lock on the directory, since another server might bind in between.
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

# Anybody who may read the directory may lock it, so nobody waits for the lock longer than a second.
LOCK_ATTEMPTS = 100
LOCK_PAUSE_S = 0.01


class UnixListener:
    """A listening socket at ``path``. Raises OSError where the path is in use, or cannot be used."""

    def __init__(self, path: str | os.PathLike[str], *, backlog: int) -> None:
        self.path = path = os.fspath(path)
        if not path:
            raise OSError(errno.EINVAL, "the path is empty")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._file: tuple[int, int] | None = None
        try:
            self.socket.setblocking(False)
            if path.startswith("\0"):
                # A name of Linux's abstract namespace, without a file.
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
        """Remove the path if it is still this socket's; to be called before the socket is closed. Twice is fine.

        While the socket is open no other file can have its inode.
        """
        file, self._file = self._file, None
        if file is not None and _identity(self.path) == file:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def close(self) -> None:
        """Remove the path if it is still this socket's, and close the socket. Twice is fine."""
        self.remove()
        self.socket.close()


def _remove_dead(path: str) -> None:
    """Remove the socket file of a server that has ended. Raises OSError where the path is something else."""
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
            # Its queue of connections is full.
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
    """Hold a lock on a directory, if it can be had: where it cannot, servers that start at once are not told apart."""
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
                break  # a file system without locks
        yield
    finally:
        os.close(fd)
