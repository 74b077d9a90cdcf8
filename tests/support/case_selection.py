"""Which cases of a test `make test` runs, where all of them would take long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def long_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """The cases, of which those after the first ``count`` are for `make check`."""
    marked = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        marked.append(pytest.param(*values, marks=pytest.mark.long) if number >= count else case)
    return marked
