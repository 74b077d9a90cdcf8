"""Limits on micro-batches, for tests that also run under a Spark that has none for sources in Python."""

from __future__ import annotations

from typing import Any

from mainstem.spark.sources.features import HAS_READ_LIMITS

__all__ = ["HAS_READ_LIMITS", "limits"]


def limits(**options: Any) -> dict[str, Any]:
    """The options, or where Spark has no limits none: what a query reads is the same, in one micro-batch."""
    return options if HAS_READ_LIMITS else {}
