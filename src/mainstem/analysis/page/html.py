"""A report as one self-contained HTML file, readable on a phone, light or dark.

``analyze`` and the demo build their pages from these parts. ``svg`` draws the charts.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# One column on a phone, two columns of charts on a wide screen, and a light or dark theme as the reader prefers.
_STYLE = """
:root { color-scheme: light dark; --ink: #22303c; --soft: #566673; --paper: #fff; --ground: #f3f5f7; --edge: #d9e1e8;
  --blue: #1f6fb2; --orange: #b8650f; --green: #24784a; --red: #b52f40; --violet: #7348a8; --good: #24784a; --bad: #b52f40; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e9ee; --soft: #9fb0bd; --paper: #1b232b; --ground: #11171c;
  --edge: #33414d; --blue: #62aef0; --orange: #efa352; --green: #63c28d; --red: #f0808d; --violet: #bb97ea;
  --good: #1f6b43; --bad: #96303e; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); }
main { max-width: 68rem; margin: 0 auto; padding: 1.2rem 1rem 3rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 .5rem; }
h3 { font-size: 1rem; margin: 1rem 0 .3rem; }
p { margin: .1rem 0 .7rem; color: var(--soft); overflow-wrap: anywhere; }
a { color: var(--blue); }
section { background: var(--paper); border: 1px solid var(--edge); border-radius: 8px; padding: 1rem; margin-top: 1rem; }
.verdict { color: #fff; background: var(--good); border: 0; } .verdict.bad { background: var(--bad); }
.verdict ul { margin: 0; padding-left: 1.2rem; } .verdict li { overflow-wrap: anywhere; }
.pairs { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: 0 2rem; margin: 0; }
.pairs div { display: flex; justify-content: space-between; gap: 1rem; border-bottom: 1px solid var(--edge); padding: .15rem 0; }
.pairs dt { color: var(--soft); } .pairs dd { margin: 0; text-align: right; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem 1.5rem; }
.charts h3 { margin: .2rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { padding: .25rem .45rem; border-bottom: 1px solid var(--edge); text-align: right; }
td { white-space: nowrap; } td.text { white-space: normal; overflow-wrap: anywhere; }
th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
details > summary { cursor: pointer; } summary h2 { display: inline; } summary span { color: var(--soft); margin-left: .6rem;
  overflow-wrap: anywhere; }
details[open] > summary { margin-bottom: .8rem; }
svg { display: block; width: 100%; height: auto; }
.tick { font: 10px system-ui, sans-serif; fill: var(--soft); } .end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--edge); stroke-width: 1; } .lane { fill: var(--ground); }
.line { fill: none; stroke-width: 1.5; stroke-linejoin: round; } .fill { opacity: .16; stroke: none; }
.line.blue { stroke: var(--blue); } .line.orange { stroke: var(--orange); } .line.green { stroke: var(--green); }
.line.red { stroke: var(--red); } .line.violet { stroke: var(--violet); }
.fill.blue, .dot.blue, .bar.blue { fill: var(--blue); } .fill.orange, .dot.orange, .bar.orange { fill: var(--orange); }
.fill.green, .dot.green, .bar.green { fill: var(--green); } .fill.red, .dot.red, .bar.red { fill: var(--red); }
.fill.violet, .dot.violet, .bar.violet { fill: var(--violet); }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; font-size: .85rem; color: var(--soft); }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em; }
.key.blue { background: var(--blue); } .key.orange { background: var(--orange); } .key.green { background: var(--green); }
.key.red { background: var(--red); } .key.violet { background: var(--violet); }
footer { margin-top: 1.5rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 60rem) {
  main { padding: 1rem .6rem 2rem; } section { padding: .8rem .7rem; }
  table, tbody, tr, td { display: block; width: 100%; } thead { display: none; }
  tr { border-bottom: 2px solid var(--edge); padding: .4rem 0; }
  td, td:first-child { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: .1rem 0; text-align: right; }
  td, td.text { white-space: normal; overflow-wrap: anywhere; }
  td::before { content: attr(data-name); color: var(--soft); flex: none; }
}
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title><link rel="icon" href="data:,">
<style>{style}</style></head>
<body><main>
<header><h1>{title}</h1><p>{lead}</p></header>
<section class="verdict {mood}"><h2>Verdict</h2><ul>{verdict}</ul></section>
{body}
<footer>{footer}</footer>
</main></body></html>
"""
# Columns of text, which may be long and wrap. Numbers never wrap.
_TEXTS = ("channel", "text", "what became of it")


def document(title: str, lead: str, verdict: Iterable[str], parts: Iterable[str], *, is_bad: bool, footer: str) -> str:
    """Return the whole page. ``parts`` are HTML, and everything else is plain text. Empty parts are omitted."""
    return _PAGE.format(
        title=escape(title),
        style=_STYLE,
        lead=escape(lead),
        mood="bad" if is_bad else "good",
        verdict="".join(f"<li>{escape(sentence)}</li>" for sentence in verdict),
        body="\n".join(filter(None, parts)),
        footer=escape(footer),
    )


def section(title: str, *content: str, lead: str = "") -> str:
    """Return a titled section of the page, or an empty string if it has no content."""
    inside = "".join(content)
    intro = f"<p>{escape(lead)}</p>" if lead else ""
    return f"<section><h2>{escape(title)}</h2>{intro}{inside}</section>" if inside else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose rows become cards on a narrow screen. Cells are HTML."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = ""
    for row in rows:
        cells = (_cell(name, cell) for name, cell in zip(head, row, strict=True))
        body += f"<tr>{''.join(cells)}</tr>"
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(name: str, cell: str) -> str:
    kind = ' class="text"' if name in _TEXTS else ""
    return f'<td{kind} data-name="{escape(name, quote=True)}">{cell}</td>'


def pairs(values: Iterable[tuple[str, str]]) -> str:
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in values)
    return f'<dl class="pairs">{items}</dl>'


def figure(title: str, picture: str, lead: str = "") -> str:
    intro = f"<p>{escape(lead)}</p>" if lead else ""
    return f"<div><h3>{escape(title)}</h3>{intro}{picture}</div>"


def figures(parts: Iterable[str]) -> str:
    """Arrange charts side by side if there is space."""
    return f'<div class="charts">{"".join(parts)}</div>'
