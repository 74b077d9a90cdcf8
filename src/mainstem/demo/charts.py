"""The report's pictures, as SVG texts."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.demo.figures import CarrierMonth
    from mainstem.demo.sampling import Sample

INK, GRID = "#22303c", "#d9e1e8"
BLUE, ORANGE, GREEN, RED = "#1f6fb2", "#d9822b", "#2e8b57", "#c23b4b"
SIZE = (7.4, 3.3)


def _figure() -> tuple[Any, Any]:
    # Straight to the vector backend: no window system is asked for, and nothing global is changed.
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    axes.tick_params(colors=INK, labelsize=10)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    return figure, axes


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    # The page decides how wide it is.
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', text, count=1)


def _label(axes: Any, x: str, y: str) -> None:
    axes.set_xlabel(x, color=INK, fontsize=10)
    axes.set_ylabel(y, color=INK, fontsize=10)


# So many points make a line that can be read, however long the run was.
POINTS = 80


def _rates(samples: list[Sample], value: Any) -> tuple[list[float], list[float]]:
    """The growth of a counter per second, over windows that make about ``POINTS`` points."""
    seconds = max(0.2, samples[-1].seconds / POINTS)
    times, rates, last = [0.0], [0.0], samples[0]
    for sample in samples[1:]:
        passed = sample.seconds - last.seconds
        if passed >= seconds or sample is samples[-1]:
            times.append(sample.seconds)
            rates.append((value(sample) - value(last)) / max(passed, 1e-9))
            last = sample
    return times, rates


def _legend(axes: Any) -> None:
    """Above the picture, where no line can run through it."""
    axes.legend(frameon=False, fontsize=10, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, ncols=4)


def throughput(samples: list[Sample], bytes_per_message: float) -> str:
    """Bytes of the stream a second, as the subscriber took them, and on the wire."""
    figure, axes = _figure()
    times, rates = _rates(samples, lambda s: s.positions["subscriber"])
    axes.fill_between(times, [r / 1e6 for r in rates], color=BLUE, alpha=0.15, linewidth=0)
    axes.plot(times, [r / 1e6 for r in rates], color=BLUE, linewidth=1.8, label="stream, as recorded")
    times, rates = _rates(samples, lambda s: s.bytes_sent)
    axes.plot(times, [r / 1e6 for r in rates], color=ORANGE, linewidth=1.4, label="sent, repairs included")
    axes.set_ylim(bottom=0)
    _label(axes, "seconds", "MB/s")
    if bytes_per_message > 0:
        per = 1e6 / bytes_per_message / 1000
        right = axes.secondary_yaxis("right", functions=(lambda v: v * per, lambda v: v / per))
        right.set_ylabel("thousand messages/s", color=INK, fontsize=10)
        right.tick_params(colors=INK, labelsize=10)
        right.spines["right"].set_color(GRID)
    _legend(axes)
    return _svg(figure)


def repairs(samples: list[Sample]) -> str:
    """NAKs, retransmits and lost datagrams, counted up over time."""
    figure, axes = _figure()
    times = [s.seconds for s in samples]
    for name, color, values in (
        ("datagrams dropped", RED, [s.dropped for s in samples]),
        ("NAKs sent", BLUE, [s.naks for s in samples]),
        ("retransmits sent", GREEN, [s.retransmits for s in samples]),
    ):
        axes.plot(times, values, color=color, linewidth=1.8, label=name)
    axes.set_ylim(bottom=0)
    _label(axes, "seconds", "count so far")
    _legend(axes)
    return _svg(figure)


def positions(samples: list[Sample]) -> str:
    """How far publisher, sender, receiver and subscriber were, and by how much the first was ahead of the last."""
    figure, axes = _figure()
    times = [s.seconds for s in samples]
    styles = {"publisher": (RED, "-"), "sender": (ORANGE, "--"), "receiver": (GREEN, "-."), "subscriber": (BLUE, ":")}
    for name, (color, style) in styles.items():
        axes.plot(
            times, [s.positions[name] / 1e6 for s in samples], color=color, linestyle=style, linewidth=1.8, label=name
        )
    axes.set_ylim(bottom=0)
    _label(axes, "seconds", "position, MB")
    lag = [(s.positions["publisher"] - s.positions["subscriber"]) / 1e6 for s in samples]
    right = axes.twinx()
    right.fill_between(
        times, [max(value, 0) for value in lag], color=INK, alpha=0.12, linewidth=0, label="in flight (right)"
    )
    right.set_ylim(0, max(*lag, 0.1) * 3)
    right.set_ylabel("in flight, MB", color=INK, fontsize=10)
    right.tick_params(colors=INK, labelsize=10)
    for side in right.spines.values():
        side.set_visible(False)
    _legend(axes)
    return _svg(figure)


def delays(figures: list[CarrierMonth]) -> str:
    """Mean departure delay for each carrier, over all months."""
    sums: dict[str, tuple[float, int]] = {}
    for f in figures:
        total, count = sums.get(str(f.carrier), (0.0, 0))
        sums[str(f.carrier)] = (total + f.delay_sum, count + f.delayed)
    means = sorted((total / count, carrier) for carrier, (total, count) in sums.items() if count)
    figure, axes = _figure()
    axes.grid(False, axis="x")
    bars = axes.bar([carrier for _, carrier in means], [mean for mean, _ in means], color=BLUE)
    axes.bar_label(bars, fmt="%.1f", fontsize=9, color=INK, padding=2)
    _label(axes, "carrier", "mean departure delay, minutes")
    return _svg(figure)
