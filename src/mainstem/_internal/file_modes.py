"""Who may read and write the files that a driver or a recorder creates.

A directory decides, once: files in it have its mode, without the right to search, and its group, whichever program creates them.
So the umask counts where the directory is created without a mode, and ``chmod`` and ``chgrp`` of a directory hold for all that is
created in it later. What is there already stays as it is.
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
# In a directory that all users share, as /tmp is, a file is its owner's to write and its group's to read.
SHARED_FILE_MODE = 0o640
MAX_MODE = 0o777
# Of a directory of recordings: not every user may read what was sent on a stream.
RECORDINGS_MODE = 0o750
ACCEPTED_MODE = "octal from 0700 to 0777, as in 0750"


def wrong_mode(text: str) -> str | None:
    """What is wrong with a text as the mode of a directory; None when nothing is."""
    try:
        mode = int(text, 8)
    except ValueError:
        return "is no octal number"
    # A mode without the owner's own rights would shut out the driver and the recorder themselves.
    return None if 0o700 <= mode <= MAX_MODE else "is no mode that a directory's owner can use"


def parse_mode(text: str, *, name: str = "mode") -> int | None:
    """Read the mode of a directory, octal; None where the text is empty. Raises ConfigurationError."""
    if not text:
        return None
    if wrong := wrong_mode(text):
        raise ConfigurationError(f"{name}: {text!r} {wrong}; accepted: {ACCEPTED_MODE}")
    return int(text, 8)


def group_id(name: str) -> int:
    """The number of a group, given by its name or number. Raises ConfigurationError if there is none."""
    if name.isdecimal():
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigurationError(f"group: there is no group {name!r} on this machine") from None


def make_directory(path: Path | str, *, default: int = MAX_MODE, mode: int | None = None, group: str = "") -> None:
    """Create a directory and those above it; one that is there stays as it is, unless a mode or a group is given.

    Raises ConfigurationError or OSError.
    """
    # First, so that a wrong name creates nothing.
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
    """Create a directory that only this user may enter, below one that others may write, such as ``/tmp``.

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
    """Write a file that only this user may read, in place of whatever has its name. Raises OSError."""
    import tempfile

    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            # After a loss of power there is the old file or the new one, not an empty one.
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _make(path: str, mode: int) -> None:
    """As ``os.makedirs``, which has no mode for those above."""
    if not os.path.isdir(path):
        _make(os.path.dirname(path), mode)
        with suppress(FileExistsError):
            os.mkdir(path, mode)
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def create_file(path: Path | str, flags: int) -> int:
    """Open a file, and create it if it is missing, with its directory's mode and group; an ``opener`` of ``open``.

    A symbolic link in the file's place is refused: in a directory that others may write it could lead anywhere. Raises OSError.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    above = os.stat(os.path.dirname(path) or ".")
    mode = SHARED_FILE_MODE if above.st_mode & stat.S_ISVTX else above.st_mode & FILE_BITS
    # Never more than it is to be, and at once all of it where the umask leaves it: who waits for the file may open it.
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
            continue  # deleted in between
    created = os.fstat(fd)
    # As far as this user and the file system may: one who is not a member of the directory's group creates files of its own
    # group, and where the mount decides about modes, nothing else does.
    with suppress(PermissionError):
        if created.st_gid != above.st_gid:
            os.fchown(fd, -1, above.st_gid)
    with suppress(PermissionError):
        if stat.S_IMODE(created.st_mode) != mode:
            os.fchmod(fd, mode)
    return fd
