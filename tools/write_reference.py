"""Writes docs/reference/: one page for each public module, filled from the docstrings when the site is built, and the tables of
commands, settings, counters, errors and tables (``reference_tables.py``).

``--check`` only compares, for the form test.
"""

from __future__ import annotations

import sys
from pathlib import Path

from public_api import PUBLIC
from reference_tables import PAGES

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
INDEX = """# Reference

| page | what it lists |
| --- | --- |
{tables}
## Modules

What may be imported, written from the docstrings. A module that is not listed is private: it may move or go in any release.

| module | what it is for |
| --- | --- |
"""


def pages() -> dict[str, str]:
    """The text of every page, by file name."""
    rows = "".join(f"| [`{module}`]({page}.md) | {meaning} |\n" for module, (page, meaning) in PUBLIC.items())
    lists = "".join(f"| [{meaning}]({page}.md) | |\n" for page, (meaning, _) in PAGES.items())
    texts = {"index.md": INDEX.replace("{tables}", lists) + rows}
    texts |= {f"{page}.md": write() for page, (_, write) in PAGES.items()}
    for module, (page, meaning) in PUBLIC.items():
        texts[f"{page}.md"] = f"# `{module}`\n\n{meaning[0].upper()}{meaning[1:]}.\n\n::: {module}\n"
    return texts


def main() -> None:
    """Writes the pages, or compares them."""
    texts = pages()
    if "--check" in sys.argv[1:]:
        present = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
        sys.exit(0 if present == texts else "docs/reference is stale: run python tools/write_reference.py")
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.md"):
        path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    main()
