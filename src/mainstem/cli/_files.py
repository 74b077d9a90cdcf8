"""Files that commands write: pipes and devices are written in place; other files get their name once they are complete."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_written_in_place(path: Path) -> bool:
    """Return whether replacing the file would not reach its reader: a pipe, a device, or a descriptor as in ``>(…)``."""
    return path.exists() and (not path.is_file() or path.is_relative_to("/dev") or path.is_relative_to("/proc"))


@contextmanager
def output_file(name: str, option: str = "--out") -> Iterator[IO[bytes]]:
    """Open standard output (``-``), a pipe or device, or a file that gets its name once complete and is deleted otherwise.

    Raises ConfigurationError if it cannot be written.
    """
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    if path.is_dir():
        raise ConfigurationError(f"{option}: {path} is a directory")
    in_place = is_written_in_place(path)
    part = path if in_place else path.with_name(f".{path.name}.part")
    try:
        file = part.open("wb")
    except OSError as error:
        raise ConfigurationError(f"{option}: {path} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield file
            if not in_place:
                file.flush()
                os.fsync(file.fileno())
        if not in_place:
            part.replace(path)
    finally:
        if not in_place:
            part.unlink(missing_ok=True)


def write_secret(path: Path, text: str) -> None:
    """Write a secret to a new file that only its owner can read, or to a pipe or device.

    Raises ConfigurationError if the file exists or cannot be written.
    """
    flags = os.O_WRONLY | os.O_CLOEXEC | (0 if is_written_in_place(path) else os.O_CREAT | os.O_EXCL)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise ConfigurationError(f"{path} already exists; name a new file, or delete it first") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    except OSError as error:
        if flags & os.O_EXCL:
            with suppress(OSError):
                path.unlink()
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
