"""A seed determines a run frame for frame, whatever the interpreter's hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
from mainstem.sim.runner import run_one
for scenario in ("names", "duologue", "moving"):
    print(run_one(scenario, 102).facts)
"""


def test_a_run_does_not_depend_on_the_hash_seed() -> None:
    facts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(facts) == 1, facts
