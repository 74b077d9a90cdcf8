"""Limits on micro-batches, for tests that also run under versions of Spark that have none for Python sources."""

from __future__ import annotations

from typing import Any

from mainstem.spark.sources.features import HAS_READ_LIMITS

__all__ = ["HAS_READ_LIMITS", "limits"]


def limits(**options: Any) -> dict[str, Any]:
    """Return the options, or none if this Spark has no limits; a query then reads the same data in one micro-batch."""
    return options if HAS_READ_LIMITS else {}
