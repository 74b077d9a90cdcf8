"""The site builds in strict mode: no page, anchor, or reference is missing, and no page loads anything from another site."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.doc_runner import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.system, pytest.mark.long]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material")
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(directory)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert result.returncode == 0, result.stderr
    return directory


def test_every_page_is_in_the_navigation(site: Path) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if page not in navigation} == set()
    assert (site / "search" / "search_index.json").exists()


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loading = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=\"(?:https?:)?//|<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*//"
    )
    elsewhere = [str(page.relative_to(site)) for page in site.rglob("*.html") if loading.search(page.read_text())]
    assert elsewhere == []


def test_no_diagram_waits_for_a_script(site: Path) -> None:
    assert [str(page) for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text()] == []


def test_an_example_of_a_docstring_is_code(site: Path) -> None:
    page = (site / "reference" / "client" / "index.html").read_text()
    assert '<span class="gp">&gt;&gt;&gt;' in page  # a prompt with syntax highlighting
    assert '<details class="example"' not in page
    assert ":mod:" not in (site / "reference" / "jmux" / "index.html").read_text()
