"""Who may read and write the files that a driver or a recorder creates.

The directory decides: files in it have its group and its mode, without the search permission, whichever program creates them. So
the umask applies when a directory is created without a mode, and a ``chmod`` or ``chgrp`` of a directory applies to everything
created in it later. Existing files do not change.
"""

from __future__ import annotations

import errno
import grp
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

FILE_BITS = 0o666
# In a directory that all users share, such as /tmp, the owner may write a file and the group may read it.
SHARED_FILE_MODE = 0o640
MAX_MODE = 0o777
# For a directory of recordings: not every user may read what was sent on a stream.
RECORDINGS_MODE = 0o750
ACCEPTED_MODE = "octal from 0700 to 0777, as in 0750"


def is_mode(text: str) -> bool:
    try:
        # A mode without all of the owner's own permissions would lock out the driver and the recorder themselves.
        return 0o700 <= int(text, 8) <= MAX_MODE
    except ValueError:
        return False


def parse_mode(text: str, *, name: str = "mode") -> int | None:
    """Parse the octal mode of a directory; return None for an empty text. Raises ConfigurationError."""
    if not text:
        return None
    if not is_mode(text):
        raise ConfigurationError(f"{name} must be {ACCEPTED_MODE} (got {text!r})")
    return int(text, 8)


def group_id(name: str) -> int:
    """Return the id of a group, given its name or number. Raises ConfigurationError if there is no such group."""
    if name.isdecimal():
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigurationError(f"group: there is no group {name!r} on this machine") from None


def make_directory(path: Path | str, *, default: int = MAX_MODE, mode: int | None = None, group: str = "") -> None:
    """Create a directory and its parents; an existing one does not change, unless a mode or a group is given.

    Raises ConfigurationError or OSError.
    """
    # Look the group up first, so that a wrong name creates nothing.
    number = group_id(group) if group else -1
    _make(os.path.abspath(path), default)
    try:
        if group:
            os.chown(path, -1, number)
        if mode is not None:
            os.chmod(path, mode)
    except PermissionError as error:
        refused = " and ".join(
            [*([f"mode {mode:04o}"] if mode is not None else []), *([f"group {group}"] if group else [])]
        )
        raise ConfigurationError(f"{path} cannot be given {refused}: {error.strerror}") from None


def private_directory(path: Path) -> None:
    """Create a directory that only this user may enter, inside one that others may write to, such as ``/tmp``.

    Raises ConfigurationError or OSError.
    """
    with suppress(FileExistsError):
        path.mkdir(0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise ConfigurationError(
            f"{path}: not a directory of this user (uid {status.st_uid}, mode {stat.filemode(status.st_mode)}); "
            "remove it, or choose another directory"
        )
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only this user may read, replacing any file of that name. Raises OSError."""
    import tempfile

    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            # After a power failure there is the old file or the new one, not an empty one.
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _make(path: str, mode: int) -> None:
    """Like ``os.makedirs``, but use ``mode`` for the parents too."""
    if not os.path.isdir(path):
        _make(os.path.dirname(path), mode)
        with suppress(FileExistsError):
            os.mkdir(path, mode)
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def create_file(path: Path | str, flags: int) -> int:
    """Open a file, or create it with its directory's mode and group if it is missing; an ``opener`` for ``open``.

    A symbolic link in the file's place is refused: in a directory that others may write to, it could lead anywhere. Raises OSError.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    above = os.stat(os.path.dirname(path) or ".")
    mode = SHARED_FILE_MODE if above.st_mode & stat.S_ISVTX else above.st_mode & FILE_BITS
    # Never grant more than the final mode, but all of it at once if the umask allows: programs waiting for the file may open it.
    begin = mode if above.st_gid == os.getegid() else mode & ~0o070
    while True:
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, begin)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
        else:
            break
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            continue  # deleted in the meantime
    created = os.fstat(fd)
    # Do what this user and the file system permit: a user who is not in the directory's group creates files of their own group,
    # and on some mounts modes cannot be changed.
    with suppress(PermissionError):
        if created.st_gid != above.st_gid:
            os.fchown(fd, -1, above.st_gid)
    with suppress(PermissionError):
        if stat.S_IMODE(created.st_mode) != mode:
            os.fchmod(fd, mode)
    return fd
