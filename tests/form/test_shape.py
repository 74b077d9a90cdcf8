"""What other modules may use is documented."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.form

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "mainstem"
SOURCES = sorted(PACKAGE.rglob("*.py"))


def test_every_module_says_what_it_is() -> None:
    silent = [str(p.relative_to(ROOT)) for p in SOURCES if ast.get_docstring(ast.parse(p.read_text())) is None]
    assert silent == []


def public_definitions(tree: ast.Module) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]


def test_every_public_class_and_function_is_documented() -> None:
    undocumented = []
    for path in SOURCES:
        relative = path.relative_to(PACKAGE)
        if relative.name == "plain.py":
            continue  # atomics.pxd says what each primitive does
        undocumented += [
            f"{relative}:{node.lineno} {node.name}"
            for node in public_definitions(ast.parse(path.read_text()))
            if ast.get_docstring(node) is None
        ]
    assert undocumented == []
