"""Draws small SVG charts without scripts, in the page's light or dark colors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Chart units are pixels on a phone. Wider screens scale the chart.
WIDTH, HEIGHT = 340, 160
LEFT, RIGHT, TOP, BOTTOM = 46, 6, 8, 22
TICKS = 4


@dataclass(frozen=True)
class Series:
    """A line in a chart: its name, its color (a CSS class), and a value for each time. None breaks the line."""

    name: str
    color: str
    values: Sequence[float | None]
    is_filled: bool = False
    is_dots: bool = False


def nice_step(span: float) -> float:
    """Return 1, 2 or 5 times a power of ten that divides ``span`` into about ``TICKS`` steps."""
    if span <= 0:
        return 1.0
    raw = span / TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)


def chart(times: Sequence[float], series: Sequence[Series], label: Callable[[float], str], *, title: str) -> str:
    """Draw lines over ``times`` (seconds from 0). ``label`` formats the values of the axis."""
    top = max((value for line in series for value in line.values if value is not None), default=0.0)
    step = nice_step(top or 1.0)
    top = max(math.ceil((top or 1.0) / step - 1e-9), 1) * step
    first, last = 0.0, max(times[-1], 1e-9)

    def x(time: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (time - first) / (last - first)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(value, top) / top

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">']
    for index in range(round(top / step) + 1):
        at = y(index * step)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 4}" y="{at + 3.5:.1f}">{escape(label(index * step))}</text>')
    parts += _time_axis(first, last, x)
    for line in series:
        parts += _dots(times, line, x, y) if line.is_dots else _line(times, line, x, y)
    return "".join([*parts, "</svg>", legend(series)])


def _time_axis(first: float, last: float, x: Callable[[float], float]) -> list[str]:
    step, out = nice_step(last - first), []
    digits = max(0, -math.floor(math.log10(step)))
    tick = math.ceil(first / step - 1e-9)
    while tick * step <= last + 1e-9:
        at = x(tick * step)
        anchor = "end" if at > WIDTH - RIGHT - 12 else "middle"
        text = f"{tick * step:.{digits}f}"
        out.append(f'<text class="tick {anchor}" x="{at:.1f}" y="{HEIGHT - 8}">{text}</text>')
        tick += 1
    out.append(f'<text class="tick" x="2" y="{HEIGHT - 8}">s</text>')
    return out


def _line(times: Sequence[float], line: Series, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    runs: list[list[tuple[float, float]]] = [[]]
    for time, value in zip(times, line.values, strict=True):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((x(time), y(value)))
    out = []
    for run in filter(None, runs):
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in run)
        if line.is_filled:
            base = HEIGHT - BOTTOM
            out.append(
                f'<polygon class="fill {line.color}" points="{run[0][0]:.1f},{base} {points} {run[-1][0]:.1f},{base}"/>'
            )
        if len(run) == 1:
            out.append(f'<circle class="dot {line.color}" cx="{run[0][0]:.1f}" cy="{run[0][1]:.1f}" r="2"/>')
        else:
            out.append(f'<polyline class="line {line.color}" points="{points}"/>')
    return out


def _dots(times: Sequence[float], line: Series, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    return [
        f'<circle class="dot {line.color}" cx="{x(time):.1f}" cy="{y(value):.1f}" r="1.8"/>'
        for time, value in zip(times, line.values, strict=True)
        if value is not None
    ]


def bars(values: Sequence[tuple[str, float]], label: Callable[[float], str], *, title: str) -> str:
    """Draw a horizontal bar for each name, followed by its value. Negative bars point left."""
    lane = 16
    left, right = max(LEFT, 6 + 6.5 * max((len(name) for name, _ in values), default=0)), 40
    low = min((value for _, value in values if value < 0), default=0.0)
    high = max((value for _, value in values if value > 0), default=low + 1e-9)
    height = TOP + lane * len(values) + TOP

    def x(value: float) -> float:
        return left + (WIDTH - left - right) * (value - low) / (high - low)

    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title, quote=True)}">']
    for index, (name, value) in enumerate(values):
        at, start, end = TOP + lane * index, x(min(value, 0.0)), x(max(value, 0.0))
        parts += [
            f'<text class="tick end" x="{left - 4:.1f}" y="{at + 11}">{escape(name)}</text>',
            f'<rect class="bar blue" x="{start:.1f}" y="{at + 2}" width="{end - start:.1f}" height="{lane - 5}"/>',
            f'<text class="tick" x="{end + 4:.1f}" y="{at + 11}">{escape(label(value))}</text>',
        ]
    return "".join([*parts, "</svg>"])


def legend(series: Sequence[Series]) -> str:
    items = "".join(f'<span><i class="key {line.color}"></i>{escape(line.name)}</span>' for line in series)
    return f'<div class="legend">{items}</div>'


def spans(
    rows: Sequence[tuple[str, Sequence[tuple[float, float, str]]]], first: float, last: float, *, title: str,
    series: Sequence[Series],
) -> str:  # fmt: skip
    """Draw time spans in a lane for each name. Each row is ``(name, [(start, end, color)])``."""
    lane, last = 16, max(last, first + 1e-9)
    left = max(LEFT, 6 + 6.5 * max(len(name) for name, _ in rows))
    height = TOP + lane * len(rows) + BOTTOM

    def x(time: float) -> float:
        return left + (WIDTH - left - RIGHT) * (min(max(time, first), last) - first) / (last - first)

    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title, quote=True)}">']
    for index, (name, bars) in enumerate(rows):
        at = TOP + lane * index
        parts.append(f'<text class="tick end" x="{left - 4:.1f}" y="{at + 11}">{escape(name)}</text>')
        parts.append(
            f'<rect class="lane" x="{left:.1f}" y="{at + 2}" width="{WIDTH - left - RIGHT:.1f}" height="{lane - 5}"/>'
        )
        for start, end, color in bars:
            wide = max(x(end) - x(start), 0.8)
            parts.append(
                f'<rect class="bar {color}" x="{x(start):.1f}" y="{at + 2}" width="{wide:.1f}" height="{lane - 5}"/>'
            )
    axis = "".join(_time_axis(first, last, x))
    parts.append(f'<g transform="translate(0 {height - HEIGHT})">{axis}</g>')
    return "".join([*parts, "</svg>", legend(series)])
