"""The examples run and print what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import STALL_S

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[3]
PROMISED = {
    "requests": "['spring', 'bank'] → ['bank', 'spring']",
    "actor": "balance: 42",
    "certificates": "gull: refused 'lock closed'",
    "live_feed": "the gauge was told: that is enough",
    "jobs": "survey: nobody listens, so it stops",
}


@pytest.mark.parametrize("name", list(PROMISED))
def test_examples_print_their_documented_output(name: str) -> None:
    pytest.importorskip("msgspec")
    script = ROOT / "examples" / "aqueduct" / f"{name}.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=STALL_S, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert PROMISED[name] in done.stdout
