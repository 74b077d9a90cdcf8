"""Warnings about files that are read repeatedly: one line each."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


@lru_cache(maxsize=1024)
def warn_once(log: logging.Logger, text: str) -> None:
    """Log a warning, unless it is one of the last thousand that were logged."""
    log.warning("%s", text)
