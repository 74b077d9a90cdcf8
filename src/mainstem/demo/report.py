"""The demo's ``report.html``, built like that of ``mainstem analyze``."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from mainstem.analysis.page import formatting, html
from mainstem.demo import charts
from mainstem.demo.figures import CarrierMonth

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from mainstem.demo.result import Result


def busiest(figures: Sequence[object], count: int = 10) -> tuple[list[str], list[list[str]]]:
    """Return the header and rows for the ten busiest carrier-months, or for the first columns of another table."""
    months = [f for f in figures if isinstance(f, CarrierMonth)]
    if not months:
        rows = [[f.column, f"{f.values:,}", f"{f.distinct:,}"] for f in figures]  # type: ignore[attr-defined]
        return ["column", "values", "different"], rows[: count * 3]
    chosen = sorted(months, key=lambda f: -f.flights)[:count]
    return ["carrier", "month", "flights", "mean delay, min", "cancelled"], [
        [
            str(f.carrier),
            str(f.month),
            f"{f.flights:,}",
            "–" if f.mean_delay is None else f"{f.mean_delay:.2f}",
            f"{f.cancelled_share:.2%}",
        ]
        for f in chosen
    ]


def verdict(result: Result) -> str:
    """Return the result of the run in one sentence."""
    if result.is_success:
        return f"All {result.offered:,} messages arrived once and in order, and every row and figure equals the source."
    faults = [
        f"{count:,} {name}"
        for name, count in (
            ("lost", result.lost),
            ("duplicated", result.duplicated),
            ("out of order", result.out_of_order),
        )
        if count
    ]
    if not result.tables_equal:
        faults.append(
            "the tables differ" + (f" in {', '.join(result.unequal_columns)}" if result.unequal_columns else "")
        )
    return "Not as sent: " + ", ".join(faults) + "."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return html.table(head, ([escape(cell) for cell in row] for row in rows))


def _charts(result: Result) -> list[str]:
    samples, parts = result.samples, []
    if len(samples) >= 2:
        seconds = max(samples[-1].seconds, 1e-9)
        rate = f"{formatting.count(result.received / seconds)} messages a second were recorded, on average."
        parts = [
            html.figure("Throughput, bytes a second", charts.throughput(samples), rate),
            html.figure("Loss and repair, so far", charts.repairs(samples),
                        "Dropped data is asked for again (NAK) and sent again; control frames repeat themselves."),
            html.figure("In flight, bytes", charts.in_flight(samples),
                        "How far sender, receiver and subscriber were behind the publisher."),
        ]  # fmt: skip
    if months := [figure for figure in result.figures if isinstance(figure, CarrierMonth)]:
        delays = charts.delays(months)
        parts.append(html.figure("Delay by carrier, minutes", delays, "Mean departure delay over the year."))
    return parts


def render(result: Result) -> str:
    """Return the page."""
    head, rows = busiest(result.figures)
    lead = "The ten busiest carrier-months" if "carrier" in head else "What each column holds"
    loss = f"{result.loss:.0%} of the datagrams dropped on purpose" if result.loss else "no datagram dropped on purpose"
    stages = [(name, f"{seconds:.2f} s") for name, seconds in result.stages.items()]
    pictures = _charts(result)
    return html.document(
        f"{result.source}, over Aeron into Spark",
        f"{result.offered:,} rows, one message each, over UDP with {loss}, recorded and read as a table.",
        [verdict(result)],
        [
            html.section("The run", html.pairs(result.counts())),
            html.section("Time by stage", html.pairs(stages), lead="Publishing, recording and reading overlap."),
            html.section("Timelines", html.figures(pictures)) if pictures else "",
            html.section(lead, _table(head, rows), lead="Computed by Spark from what arrived."),
        ],
        is_bad=not result.is_success,
        footer="Written by mainstem demo.",
    )


def write(result: Result, path: Path) -> None:
    """Write the page."""
    path.write_text(render(result), encoding="utf-8")
