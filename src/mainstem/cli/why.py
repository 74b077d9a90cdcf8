"""Show why each stream is stalled, since when, and the numbers that show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rich.padding import Padding
from rich.text import Text

from mainstem.aeron.tools.diagnosis import IMAGE, ON_AND_OFF, diagnose, diagnosis_row
from mainstem.aeron.tools.driver_warnings import driver_warnings
from mainstem.aeron.tools.select import snapshot_header
from mainstem.cli._drivers import Inspection, print_header, take_snapshots
from mainstem.cli._options import duration, flag, integer
from mainstem.cli._output import clock_time, print_json, print_title

if TYPE_CHECKING:
    from rich.console import Console

    from mainstem.aeron.tools.diagnosis import Diagnosis
    from mainstem.aeron.tools.reading import DirectoryReader
    from mainstem.aeron.tools.snapshot import Snapshot

INDENT = 2


def run(
    inspection: Inspection,
    seconds: Annotated[float, duration("--duration", "How long to take samples.")] = 1.0,
    samples: Annotated[int, integer("--samples", "How many samples to take in that time.", minimum=1, max=10_000)] = 20,
    everything: Annotated[bool, flag("--all -a", "Show streams that are not stalled, too.")] = False,
) -> None:
    """Show why each stream is stalled, since when, and the numbers that show it.

    A slow subscriber, the flow-control window, the receiver's buffer, no receiver, a spy, a disk, a loss: from the
    counters and logs of any driver's directory alone. The decision table is in the documentation (docs/why.md).

    Example: mainstem why --stream 1001 --duration 5s --all
    """

    def show(out: Console, reader: DirectoryReader) -> None:
        snapshots = take_snapshots(reader, samples, seconds)
        warnings = driver_warnings(snapshots, reader.errors())
        chosen = [each for each in diagnose(snapshots, reader.losses()) if inspection.matches(each)]
        if inspection.as_json:
            streams = [diagnosis_row(each) for each in chosen]
            more = {"samples": len(snapshots), "warnings": list(warnings), "streams": streams}
            print_json(snapshot_header(snapshots[-1]) | more)
        else:
            _show_all(out, snapshots, warnings, chosen, everything)

    inspection.run(show)


def _show_all(
    out: Console, snapshots: list[Snapshot], warnings: tuple[str, ...], chosen: list[Diagnosis], everything: bool
) -> None:
    print_header(out, snapshots[-1])
    for warning in warnings:
        out.print(Text(f"! {warning}"))
    stalled = [d for d in chosen if d.is_stalled and (everything or not _is_shown_already(d, chosen))]
    free = [d for d in chosen if not d.is_stalled]
    for diagnosis in [*stalled, *(free if everything else [])]:
        out.print()
        _show(out, diagnosis, snapshots[-1].epoch_ms)
    out.print()
    stalled_count = sum(d.is_stalled for d in chosen)
    rest = "" if len(stalled) + everything * len(free) == len(chosen) else " (--all shows every one)"
    out.print(f"{stalled_count} of {len(chosen)} publications and images are stalled{rest}" if chosen else "no streams")


def _is_shown_already(diagnosis: Diagnosis, others: list[Diagnosis]) -> bool:
    """Return whether ``diagnosis`` is for an image whose publication has the same diagnosis."""
    own = (diagnosis.session_id, diagnosis.stream_id, diagnosis.cause)
    return diagnosis.kind == IMAGE and any(
        o.kind != IMAGE and (o.session_id, o.stream_id, o.cause) == own for o in others
    )


def _show(out: Console, diagnosis: Diagnosis, now_ms: int) -> None:
    what = f"{diagnosis.kind} {diagnosis.registration_id}"
    print_title(out, f"stream {diagnosis.stream_id}  session {diagnosis.session_id}  {what}", diagnosis.channel)
    verdict = Text.assemble(
        (
            f"{diagnosis.cause.upper() if diagnosis.is_stalled else 'not stalled'}: ",
            "red bold" if diagnosis.is_stalled else "green",
        ),
        diagnosis.sentence,
    )
    out.print(Padding(verdict, (0, 0, 0, INDENT), expand=False))
    if diagnosis.is_stalled:
        out.print(Padding(Text(_since(diagnosis, now_ms)), (0, 0, 0, INDENT), expand=False))
    figures = "  ".join(f"{name} {value:,}" for name, value in diagnosis.figures.items())
    out.print(Padding(Text(figures, style="dim"), (0, 0, 0, INDENT), expand=False))


def _since(diagnosis: Diagnosis, now_ms: int) -> str:
    parts = []
    if diagnosis.since_ms is not None:
        seconds = (now_ms - diagnosis.since_ms) / 1000
        since = f"since {clock_time(diagnosis.since_ms)}, {seconds:.1f} s ago"
        parts.append(
            f"on and off {since}" if diagnosis.since_basis == ON_AND_OFF else f"{since} ({diagnosis.since_basis})"
        )
    if diagnosis.not_before_ms is not None and diagnosis.since_basis.startswith("the first sample:"):
        parts.append(f"not before {clock_time(diagnosis.not_before_ms)}, when the {diagnosis.kind} was created")
    others = {name: n for name, n in diagnosis.samples.items() if name != diagnosis.rule}
    also = "".join(f", {name} {n}" for name, n in sorted(others.items(), key=lambda item: -item[1]))
    parts.append(f"{diagnosis.rule} in {diagnosis.agreeing} of {diagnosis.total} samples{also}")
    return "; ".join(parts)
