"""Select the cases that `make test` runs from a test whose full set of cases takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def long_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases, marking those after the first ``count`` for `make check` only."""
    marked = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        marked.append(pytest.param(*values, marks=pytest.mark.long) if number >= count else case)
    return marked
