from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.analysis.options import NoProgress
from mainstem.demo import run
from mainstem.demo.options import DemoOptions
from mainstem.demo.result import Result
from mainstem.demo.sampling import POSITIONS, Sample

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def sample(seconds: float, position: int) -> Sample:
    zeros = dict.fromkeys(("bytes_sent", "bytes_received", "naks", "retransmits", "retransmitted_bytes", "dropped"), 0)
    return Sample(seconds=seconds, positions=dict.fromkeys(POSITIONS, position), **zeros)


class Traffic:
    """Traffic whose counters are freed when it ends, while its sampler still runs."""

    offered = recorded = 3
    payload_bytes, recorded_position, is_recorded = 30, 96, True

    def __init__(self, *_: object, **__: object) -> None:
        self.sampler, self.samples = self, [sample(0.0, 50)]

    def __enter__(self) -> Traffic:
        return self

    def __exit__(self, *_: object) -> None:
        self.samples.append(sample(2.0, 0))

    def sample(self) -> Sample:
        self.samples.append(sample(1.0, 96))
        return self.samples[-1]

    def restart(self) -> None:
        self.samples.clear()

    def start(self, _: object) -> None: ...
    def go_on(self) -> None: ...
    def check(self) -> None: ...


class Query:
    def rows(self) -> int:
        return 3

    def check(self) -> None: ...


def test_the_report_has_no_samples_from_after_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "Traffic", Traffic)
    options: Any = DemoOptions(out=tmp_path)
    result, query = Result(source="flights", loss=0.0, stages={}), Query()
    run._stream(options, result, run._Stages(NoProgress()), query, [[1, 2, 3]], tmp_path)  # type: ignore[arg-type]
    assert [each.positions["subscriber"] for each in result.samples] == [96]
