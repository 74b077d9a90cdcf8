"""Prometheus's text format (exposition format 0.0.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.metrics.families import families

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem.aeron.tools.snapshot import Snapshot
    from mainstem.metrics.families import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(snapshot: Snapshot) -> str:
    """Return a complete page for a scrape, in Prometheus's text format 0.0.4.

    Args:
        snapshot: A snapshot of the directory, from ``DirectoryReader.snapshot``.

    Returns:
        The page; serve it as ``CONTENT_TYPE``.

    Example:
        >>> with DirectoryReader("/dev/shm/aeron-user") as reader:
        ...     page = render(reader.snapshot(epoch_ms=epoch_ms, now_ns=now_ns))
    """
    return render_families(families(snapshot))


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
