"""mkdocstrings extensions: show examples as code, Sphinx roles as names, and citations of protocol pages as links."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import griffe
from markdown.extensions.toc import slugify

HEADING = re.compile(r"^( *)Example:$", re.MULTILINE)
ROLE = re.compile(r":(?:attr|class|func|meth|mod):`[~.]?([^`]+)`")
CITATION = re.compile(r"docs/protocols/([\w-]+)\.md(?:,\s+(\d+(?:\.\d+)*))?")
PROTOCOLS = Path(__file__).resolve().parents[1] / "docs" / "protocols"


class ExampleSections(griffe.Extension):
    """Converts ``Example`` sections. Griffe only recognizes ``Examples``, and would show ``>>>`` as a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = ROLE.sub(r"`\1`", HEADING.sub(r"\1Examples:", obj.docstring.value))
            obj.docstring.value = CITATION.sub(_link, text)


def _link(citation: re.Match[str]) -> str:
    page, section = citation.groups()
    anchor = _anchors(page).get(section or "", "")
    return f"[{page}{', ' + section if section else ''}](../protocols/{page}.md{anchor})"


@cache
def _anchors(page: str) -> dict[str, str]:
    """Return the anchor of each numbered section of a protocol page."""
    text = (PROTOCOLS / f"{page}.md").read_text()
    headings = re.findall(r"^#{1,6} +((\d+(?:\.\d+)*)\.? .+?) *#*$", text, re.MULTILINE)
    return {number: "#" + slugify(heading, "-") for heading, number in headings}
