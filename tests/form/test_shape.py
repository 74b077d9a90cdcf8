"""The grain of the code: sizes, names once, stubs that match, a repository that speaks of the product only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.form

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "mainstem"
# Lines of code: above it two things live in one file. The longest files are the compiled data path's, where a theory of
# operation, comments and the attributes' C types take 200 lines more. Those explain the code and are not more of it: a limit on
# all lines would make a file shorter by saying less. The number is that of the longest file, rounded up to ten.
FILE_LIMIT = 670
FUNCTION_LIMIT = 70  # lines: above it two levels of abstraction do

SOURCES = sorted(PACKAGE.rglob("*.py"))


def code_lines(source: str) -> int:
    """The lines of a file that do something: no comments, no docstrings, no declarations of attributes or to Cython."""
    lines = {n for n, line in enumerate(source.splitlines(), 1) if not line.lstrip().startswith(("#", "@cython."))}
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or (isinstance(node, ast.AnnAssign) and node.value is None):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_no_file_is_longer_than_one_can_hold_in_mind() -> None:
    assert [f"{p.relative_to(ROOT)}: {n}" for p in SOURCES if (n := code_lines(p.read_text())) > FILE_LIMIT] == []


def test_no_function_is_longer_than_a_screen() -> None:
    long = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                lines = node.end_lineno - node.lineno + 1
                if ast.get_docstring(node) is not None:  # arguments and an example may fill a screen by themselves
                    lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
                if lines > FUNCTION_LIMIT:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines}")
    assert long == []


def test_each_compiled_module_is_written_once() -> None:
    """Its .pxd and .pyi, and the numbers of layout.pxd, are what the tool writes from the .py."""
    result = subprocess.run(
        [sys.executable, ROOT / "tools/write_core_stubs.py", "--check"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


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
