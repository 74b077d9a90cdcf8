"""The header of a frame in a term: the flyweight that polls hand out, and tools move over a log themselves."""

from __future__ import annotations

from mainstem._core.log.fragment import Header

__all__ = ["Header"]
