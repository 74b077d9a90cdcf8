"""The outcome of a demo run."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.demo.sampling import Sample

NOT_IN_JSON = ("rows_equal", "figures_equal", "stages", "figures", "samples")


@dataclass(kw_only=True)
class Result:
    """The results, filled in stage by stage. ``stages`` has the duration of each stage in seconds; stages can overlap."""

    source: str
    loss: float
    offered: int = 0
    received: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    payload_bytes: int = 0
    stream_bytes: int = 0
    datagrams_dropped: int = 0
    naks: int = 0
    retransmits: int = 0
    rows: int = 0
    rows_while_recording: int = 0
    rows_equal: bool = False
    figures_equal: bool = False
    unequal_columns: tuple[str, ...] = ()
    report: str = ""
    recording: str = ""
    stages: dict[str, float] = field(default_factory=dict)
    figures: list[Any] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    @property
    def tables_equal(self) -> bool:
        return self.rows_equal and self.figures_equal

    @property
    def is_success(self) -> bool:
        return self.tables_equal and not (self.lost or self.duplicated or self.out_of_order)

    def as_json(self) -> dict[str, Any]:
        shown = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in NOT_IN_JSON}
        seconds = {name: round(seconds, 3) for name, seconds in self.stages.items()}
        return shown | {"tables_equal": self.tables_equal, "seconds": seconds}

    def counts(self) -> list[tuple[str, str]]:
        return [
            ("messages offered", f"{self.offered:,}"),
            ("messages received", f"{self.received:,}"),
            ("payload", f"{self.payload_bytes / 1e6:,.1f} MB"),
            ("stream, with headers", f"{self.stream_bytes / 1e6:,.1f} MB"),
            ("datagrams dropped", f"{self.datagrams_dropped:,}"),
            ("NAKs", f"{self.naks:,}"),
            ("retransmits", f"{self.retransmits:,}"),
            ("lost", f"{self.lost:,}"),
            ("duplicated", f"{self.duplicated:,}"),
            ("out of order", f"{self.out_of_order:,}"),
            ("rows in Parquet", f"{self.rows:,}"),
            ("of them while still recording", f"{self.rows_while_recording:,}"),
            ("rows equal to the source", "yes" if self.rows_equal else "NO"),
            ("figures equal to the source", "yes" if self.figures_equal else "NO"),
        ]
