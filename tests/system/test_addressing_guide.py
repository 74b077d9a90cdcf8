"""The examples in the addressing guide are complete programs and print what the guide says."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.support.ports import own_ports, with_own_ports
from tests.support.waiting import STALL_S

pytestmark = pytest.mark.system

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "addressing.md").read_text()
SECTIONS = re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", GUIDE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("name", "text"), SECTIONS, ids=[name for name, _ in SECTIONS])
def test_an_example_of_the_guide_prints_what_it_says(name: str, text: str) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (expected,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    ports = own_ports(example)
    command = [sys.executable, "-W", "error", "-c", with_own_ports(example, ports)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=STALL_S, check=False)
    if "multicast" in name.lower() and "RegistrationError" in result.stderr:
        pytest.skip("no multicast on this machine")
    assert result.returncode == 0, result.stderr
    assert result.stdout == with_own_ports(expected, ports)


def test_every_addressing_mode_has_its_picture() -> None:
    assert len(SECTIONS) == 8
    for name, text in SECTIONS:
        (picture,) = re.findall(r"!\[.*?\]\((.*?)\)", text)
        root = ET.fromstring((DOCS / picture).read_text())
        assert root.get("aria-label"), name
        assert "prefers-color-scheme: dark" in (DOCS / picture).read_text()
