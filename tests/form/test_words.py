"""Prose and identifiers use the field's words (CONTRIBUTING.md, "Words")."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

pytestmark = pytest.mark.form

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

# What grew in this house, and what the field says.
HOUSE_WORDS = {
    r"\banswers?\b|\banswered\b|\banswering\b": "returns; responds; a response",
    r"\btells?\b|\btold\b|\btelling\b": "reports, notifies, specifies",
    r"\bsomebody\b|\bnobody\b|\bwhoever\b|\banybody\b|\beverybody\b": "a client, a subscriber, the caller",
    r"\bfaces?\b(?! of)": "API, interface",
    r"\bdoors?\b": "I/O boundary, adapter",
    r"\blooks?(?! ?-?up)\b|\blooked(?! up)\b": "reads, checks, polls",
    r"\bmean (?:peer|client|and silent)": "malicious",
    r"\blong ways?\b": "high-latency links",
}
# Locals that say that there is a value and not which.
VAGUE_NAMES = {"found", "made", "given", "told", "kept", "taken", "wanted"}


def prose(path: Path) -> list[tuple[int, str]]:
    """The comments and docstrings of a source file, or the lines of a page without its code."""
    text = path.read_text()
    if path.suffix == ".md":
        lines, fenced = [], False
        for number, line in enumerate(text.splitlines(), 1):
            fenced ^= line.startswith("```")
            if not fenced:
                lines.append((number, re.sub(r"``[^`]*``|`[^`]*`|\]\([^)]*\)", "", line)))
        return lines
    pieces = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring is not None:
                pieces += [(node.body[0].lineno + i, line) for i, line in enumerate(docstring.splitlines())]
    return [(number, re.sub(r"``[^`]*``|`[^`]*`", "", piece)) for number, piece in pieces]


def test_prose_uses_the_words_of_the_field() -> None:
    matches = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r} ({better})"
        for path in [*SOURCES, *PAGES]
        for number, line in prose(path)
        for pattern, better in HOUSE_WORDS.items()
        if (match := re.search(pattern, line, re.IGNORECASE))
    ]
    assert matches == []


def test_names_say_which_value_they_hold() -> None:
    vague = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None
            name = node.arg if isinstance(node, ast.arg) else name
            if name in VAGUE_NAMES:
                vague.append(f"{path.relative_to(ROOT)}:{node.lineno} {name}")
    assert vague == []
