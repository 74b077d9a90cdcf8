"""A folder for the file of a fuzz target, which is removed when the process ends."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path


def folder() -> Path:
    path = tempfile.mkdtemp(prefix="mainstem-fuzz-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)
