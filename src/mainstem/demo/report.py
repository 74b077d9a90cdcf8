"""``report.html``: one file that needs nothing else, readable on a phone."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from mainstem.demo import charts
from mainstem.demo.figures import CarrierMonth

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from mainstem.demo.result import Result

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: #22303c; background: #f4f6f8; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 0 0 .2rem; }
p { margin: .2rem 0 .8rem; color: #4b5b68; }
section { background: #fff; border: 1px solid #d9e1e8; border-radius: 8px; padding: 1rem; margin-top: 1rem; }
.verdict { font-weight: 600; color: #fff; background: #2e8b57; border-radius: 8px; padding: .7rem 1rem; margin: 1rem 0 0; }
.verdict.bad { background: #c23b4b; }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid #e6ebf0; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { color: #4b5b68; font-weight: 600; white-space: normal; vertical-align: bottom; }
@media (max-width: 30rem) { section { padding: .8rem .6rem; } th, td { padding: .25rem .3rem; } }
.picture { overflow-x: auto; } .picture svg { min-width: 26rem; }
svg { display: block; max-width: 100%; height: auto; }
footer { margin-top: 1.5rem; color: #6b7a86; font-size: .85rem; }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Mainstem demo</title><link rel="icon" href="data:,"><style>{style}</style></head>
<body><main>
<h1>{title}</h1>
<p>{lead}</p>
<div class="verdict{bad}">{verdict}</div>
<section class="tables"><div><h2>The run</h2>{facts}</div><div><h2>Time by stage</h2>
<p>Publishing, recording and reading overlap.</p>{stages}</div></section>
{pictures}
{busiest}
<footer>Written by mainstem demo.</footer>
</main></body></html>
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table of texts."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table>{f"<tr>{top}</tr>" if head else ""}{body}</table></div>'


def busiest(figures: Sequence[object], count: int = 10) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the ten busiest carrier-months, or of the first columns of another table."""
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
    """The run in one sentence."""
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


def _picture(title: str, lead: str, svg: str) -> str:
    return _section(title, lead, f'<div class="picture">{svg}</div>')


def _section(title: str, lead: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(lead)}</p>{content}</section>"


def render(result: Result) -> str:
    """The page."""
    samples = result.samples
    pictures = []
    if len(samples) >= 2:
        per_message = result.stream_bytes / result.received if result.received else 0.0
        pictures = [
            _picture("Throughput", "What the recorder took from the stream, and what was sent for it.",
                     charts.throughput(samples, per_message)),
            _picture("Loss and repair", "Dropped data is asked for again (NAK) and sent again; control frames repeat themselves.",
                     charts.repairs(samples)),
            _picture("Stream positions", "How far each station was; the shade is what was between first and last.",
                     charts.positions(samples)),
        ]  # fmt: skip
    months = [f for f in result.figures if isinstance(f, CarrierMonth)]
    if months:
        pictures.append(_picture("Delay by carrier", "Mean departure delay over the year.", charts.delays(months)))
    head, rows = busiest(result.figures)
    lead = "The ten busiest carrier-months" if months else "What each column holds"
    loss = f"{result.loss:.0%} of the datagrams dropped on purpose" if result.loss else "no datagram dropped on purpose"
    return _PAGE.format(
        style=_STYLE,
        title=escape(f"{result.source}, over Aeron into Spark"),
        lead=escape(f"{result.offered:,} rows, one message each, over UDP with {loss}, recorded and read as a table."),
        bad="" if result.is_success else " bad",
        verdict=escape(verdict(result)),
        facts=table((), result.facts()),
        stages=table((), [(name, f"{seconds:.2f} s") for name, seconds in result.stages.items()]),
        pictures="\n".join(pictures),
        busiest=_section(lead, "Computed by Spark from what arrived.", table(head, rows)),
    )


def write(result: Result, path: Path) -> None:
    """Writes the page."""
    path.write_text(render(result), encoding="utf-8")
