"""The options of ``mainstem.recording`` that read no more than a condition's bounds allow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mainstem.recording.rows.bounds import Range
from mainstem.spark.sources.options import time_ns_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.recording.rows.bounds import Ids, PredicateBounds

ID_OPTIONS = {"recording_id": "recordingId", "stream_id": "streamId", "session_id": "sessionId"}
RANGE_OPTIONS = {"position": ("fromPosition", "toPosition"), "recorded_at": ("fromTime", "toTime")}
# What no recording has as its id.
NO_RECORDING = "-1"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def narrowed_options(bounds: PredicateBounds, options: Mapping[str, str]) -> dict[str, str]:
    """The options that read no more than these bounds and ``options`` allow."""
    lowered = {key.lower(): value for key, value in options.items()}
    narrowed: dict[str, str] = {}
    for name, option in ID_OPTIONS.items():
        chosen: Ids = getattr(bounds, name)
        if chosen is None:
            continue
        if before := lowered.get(option.lower()):
            chosen = chosen & {int(part) for part in before.split(",") if part.strip()}
        if not chosen:
            return {"recordingId": NO_RECORDING}
        narrowed[option] = ",".join(map(str, sorted(chosen)))
    for name, (begin, end) in RANGE_OPTIONS.items():
        both: Range = getattr(bounds, name) & _range_of(name, lowered.get(begin.lower()), lowered.get(end.lower()))
        if both.low is not None:
            narrowed[begin] = _text(name, both.low)
        if both.high is not None:
            # Ranges of options end before their end.
            narrowed[end] = _text(name, both.high + 1)
    return narrowed


def _range_of(name: str, begin: str | None, end: str | None) -> Range:
    """The range of two options."""

    def number(text: str | None) -> int | None:
        if text is None:
            return None
        return int(text) if name == "position" else time_ns_of(text, name) // 1000

    stop = number(end)
    return Range(number(begin), None if stop is None else stop - 1)


def _text(name: str, value: int) -> str:
    if name == "position":
        return str(max(value, 0))
    try:
        return (EPOCH + timedelta(microseconds=value)).isoformat()
    except OverflowError:
        return (datetime.min if value < 0 else datetime.max).replace(tzinfo=UTC).isoformat()
