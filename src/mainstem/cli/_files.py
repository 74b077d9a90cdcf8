"""Checks of inputs and outputs before anything slow is started."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from mainstem.errors import CaptureError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HEAD_LENGTH = 24  # of a capture: what its format is recognised by


def require_folder(path: Path, option: str) -> None:
    """Creates a folder where it is missing, and a file in it. Raises ConfigurationError when either is impossible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(1))
    except OSError as error:
        raise ConfigurationError(f"{option}: {path}: {error.strerror}") from None


def require_captures(paths: Iterable[str]) -> None:
    """Raises CaptureError for a path without a capture that can be read."""
    from mainstem.capture.files import captures
    from mainstem.capture.formats import recognise

    for path in paths:
        problems = []
        for name in captures(path):
            try:
                with open(name, "rb") as file:
                    recognise(file.read(HEAD_LENGTH))
                break
            except (CaptureError, OSError) as error:
                problems.append(f"{name}: {getattr(error, 'strerror', None) or error}")
        else:
            raise CaptureError(problems[0])
