"""Copies captures that can be read only once, such as pipes, to a temporary file."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mainstem.capture.remote_files import capture_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

STANDARD_INPUT = "-"


def is_read_once(path: str) -> bool:
    """Whether a path is ``-``, a pipe, a socket or a device."""
    if path == STANDARD_INPUT:
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def spooled(path: str) -> Iterator[str]:
    """Copy a pipe, or ``-`` for standard input, to a file, and yield its path; other files are not copied.

    Raises CaptureError if it cannot be read.
    """
    if not is_read_once(path):
        yield path
        return
    with TemporaryDirectory(prefix="mainstem-capture-") as directory:
        copy = Path(directory) / ("stdin" if path == STANDARD_INPUT else Path(path).name)
        with (
            capture_errors(path),
            sys.stdin.buffer if path == STANDARD_INPUT else open(path, "rb") as source,
            copy.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
        yield str(copy)
