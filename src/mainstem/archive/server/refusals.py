"""A request that fails, with the code of its response."""

from __future__ import annotations

from mainstem.errors import ArchiveError, ArchiveErrorCode


def refusal(text: str, code: ArchiveErrorCode = ArchiveErrorCode.GENERIC) -> ArchiveError:
    """Return the error of a request; code and text are what its client gets."""
    return ArchiveError(text, code=code)
