"""The README's example works as shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.ports import with_own_ports
from tests.support.waiting import STALL_S

pytestmark = pytest.mark.system

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_example_prints_the_sent_messages() -> None:
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert example
    command = [sys.executable, "-W", "error", "-c", with_own_ports(example[1])]
    result = subprocess.run(command, capture_output=True, text=True, timeout=STALL_S, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["tide 0", "tide 1", "tide 2"]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# The site build checks links between the site's own pages (test_site.py).
@pytest.mark.parametrize("page", sorted(README.parent.glob("*.md")), ids=lambda page: page.name)
def test_every_link_into_the_repository_leads_somewhere(page: Path) -> None:
    for name, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        if ":" not in name:
            target = page.parent / name if name else page
            assert target.exists(), name
            assert not anchor or anchor in anchors(target), f"{name}#{anchor}"
