"""For mkdocstrings: a docstring's ``Example`` is shown as code, not as a note of quotations, and a Sphinx role as its name."""

from __future__ import annotations

import re
from typing import Any

import griffe

HEADING = re.compile(r"^( *)Example:$", re.MULTILINE)
ROLE = re.compile(r":(?:attr|class|func|meth|mod):`[~.]?([^`]+)`")


class ExampleSections(griffe.Extension):
    """Griffe recognises ``Examples`` alone; what stands below ``Example`` it hands on as Markdown, where ``>>>`` is a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(r"`\1`", HEADING.sub(r"\1Examples:", obj.docstring.value))
