"""The README's example is the first thing that anybody runs: it must do what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.patience import STALL_S

pytestmark = pytest.mark.system

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_example_prints_what_was_sent() -> None:
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert example
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", example[1]], capture_output=True, text=True, timeout=STALL_S, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["tide 0", "tide 1", "tide 2"]


def test_every_link_into_the_repository_leads_somewhere() -> None:
    for name in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        if "://" not in name:
            assert (README.parent / name).exists(), name
