"""Select the cases that `make test` runs from a test whose full set of cases takes long, and the long tests that CI runs."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]


def long_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases, marking those after the first ``count`` for `make check` only."""
    marked = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        marked.append(pytest.param(*values, marks=pytest.mark.long if number >= count else ()))
    return marked


def commit() -> str:
    """Return the source's commit; an empty string if it is not a git repository."""
    result = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.strip()


def order_of(name: str, chosen_by: str) -> bytes:
    """Return a key that sorts names in a random order, which is the same for the same commit."""
    return hashlib.sha256(f"{chosen_by} {name}".encode()).digest()


def is_in_share(name: str, share: int, chosen_by: str) -> bool:
    """Return whether a test is one of a ``share``-th of all, which are others after the next commit."""
    return int.from_bytes(order_of(name, chosen_by)[:8]) % share == 0
