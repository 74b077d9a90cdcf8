"""Errors of refused requests, with the code for the response."""

from __future__ import annotations

from mainstem.errors import ArchiveError, ArchiveErrorCode


def refusal(text: str, code: ArchiveErrorCode = ArchiveErrorCode.GENERIC) -> ArchiveError:
    """Return the error for a request. The client receives its code and text."""
    return ArchiveError(text, code=code)
