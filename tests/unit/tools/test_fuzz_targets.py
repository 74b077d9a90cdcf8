"""Each fuzz target accepts the inputs of its corpus, including those that once made it fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[3] / "fuzz"
NAMES = sorted(path.stem for path in FUZZ.glob("fuzz_*.py"))


@pytest.mark.fuzz
@pytest.mark.parametrize("name", NAMES)
def test_a_target_takes_the_inputs_of_its_corpus(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FUZZ))
    import run

    target, inputs = run.load(name)
    assert len(inputs) >= 3
    for data in inputs:
        target(data)
    sys.modules.pop("run")
