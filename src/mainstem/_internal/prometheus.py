"""Metrics and Prometheus's text format (exposition format 0.0.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value with the labels that distinguish it from its siblings.

    Attributes:
        labels: Label values by name.
        value: The value.
    """

    labels: dict[str, str]
    value: float


@dataclass(slots=True)
class Family:
    """One metric with all its samples.

    Attributes:
        name: The metric's name.
        kind: ``counter`` or ``gauge``.
        help: A line of explanation.
        samples: The values.
    """

    name: str
    kind: str
    help: str
    samples: list[Sample] = field(default_factory=list)


def render_families(metrics: Iterable[Family]) -> str:
    """Return metrics from any source as a page, in Prometheus's text format 0.0.4.

    Args:
        metrics: The metrics, from ``families`` or ``shipping_families``.

    Returns:
        The page; serve it as ``CONTENT_TYPE``.

    Example:
        >>> page = render_families(shipping_families(shipper.status()))
    """
    lines = []
    for family in metrics:
        # By convention, the name of a counter ends with _total.
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        if family.help:
            lines.append(f"# HELP {name} {_escaped(family.help)}")
        lines.append(f"# TYPE {name} {family.kind}")
        for sample in family.samples:
            labels = ",".join(f'{key}="{_quoted(value)}"' for key, value in sample.labels.items())
            lines.append(f"{name}{{{labels}}} {sample.value:.17g}" if labels else f"{name} {sample.value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
