"""Write docs/reference/: a page for each public module, filled from docstrings when the site is built, and generated tables.

The tables of commands, settings, counters, errors and tables come from ``reference_tables.py``. ``--check`` only compares, for
the form test.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import extras
from public_api import ELSEWHERE, MAINSTEM_PAGES, PUBLIC, SIGNATURE_TYPES
from reference_tables import PAGES

import mainstem

ROOT = Path(__file__).resolve().parents[1]
DIRECTORY = ROOT / "docs" / "reference"
README = ROOT / "README.md"
INDEX = """# Reference

| lists |
| --- |
{tables}
## Modules

These modules are public. All others are private and may change in any release.

| module | for |
| --- | --- |
"""
AFTER_MODULES = """
Types that programs get or pass without importing them are [on one page](types.md).
"""
TYPES = """# Types in signatures

Public functions take or return these types, and programs need not import them. The modules they are in are private.

"""


def pages() -> dict[str, str]:
    """Return the text of every page, by file name."""
    rows = "".join(f"| [`{module}`]({page}.md) | {meaning} |\n" for module, (page, meaning) in PUBLIC.items())
    lists = "".join(f"| [{meaning}]({page}.md) |\n" for page, (meaning, _) in PAGES.items())
    texts = {"index.md": INDEX.replace("{tables}", lists) + rows + AFTER_MODULES}
    texts |= {f"{page}.md": write() for page, (_, write) in PAGES.items()}
    for module, (page, meaning) in PUBLIC.items():
        texts[f"{page}.md"] = f"# `{module}`\n\n{_sentence(meaning)}\n\n::: {module}\n"
    texts["aio.md"] += _own_of_aio()
    texts["types.md"] = TYPES + "\n".join(
        f"::: {name}\n    options:\n      show_root_heading: true\n" for name in SIGNATURE_TYPES
    )
    return texts | mainstem_pages()


def _own_of_aio() -> str:
    """Return options that exclude from the page of ``mainstem.aio`` everything that is identical in ``mainstem``."""
    nodes = ast.parse((ROOT / "src" / "mainstem" / "aio.py").read_text()).body
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and "aeron.aio" in str(node.module)]
    names = sorted(alias.name for node in imports for alias in node.names)
    return f"    options:\n      members: [{', '.join(names)}]\n"


def mainstem_pages() -> dict[str, str]:
    """Return the pages of the package itself: an index of its names, and the pages that describe them."""
    exported = set(mainstem.__all__)
    placed = ELSEWHERE | {name: page for page, (_, names) in MAINSTEM_PAGES.items() for name in names}
    errors = {name for name in exported if name not in placed}
    unknown = errors - set(_error_names()) | set(placed) - exported
    assert not unknown, f"public_api.MAINSTEM_PAGES does not agree with mainstem.__all__ about {sorted(unknown)}"
    meaning = PUBLIC["mainstem"][1]
    rows = "".join(
        f"| [{_sentence(about)[:-1]}]({page}.md) | {', '.join(f'`{name}`' for name in names)} |\n"
        for page, (about, names) in MAINSTEM_PAGES.items()
    )
    rows += f"| [Recordings](recording.md) | {', '.join(f'`{n}`' for n, page in ELSEWHERE.items() if page == 'recording')} |\n"
    rows += f"| [Errors](errors.md) | {', '.join(f'`{name}`' for name in sorted(errors))} |\n"
    texts = {
        "mainstem.md": f"# `mainstem`\n\n{_sentence(meaning)} [`mainstem.aio`](aio.md) is the same for asyncio.\n\n"
        f"| page | names |\n| --- | --- |\n{rows}"
    }
    for page, (about, names) in MAINSTEM_PAGES.items():
        parts = "\n".join(f"::: mainstem.{name}\n    options:\n      show_root_heading: true\n" for name in names)
        texts[f"{page}.md"] = f"# `mainstem`: {about}\n\n{parts}"
    return texts


def _error_names() -> list[str]:
    text = (ROOT / "src" / "mainstem" / "errors.py").read_text()
    return [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]


def _sentence(meaning: str) -> str:
    return f"{meaning[0].upper()}{meaning[1:]}."


def readme() -> str:
    """Return the README with the table of extras."""
    text = README.read_text()
    return re.sub(
        r"(<!-- extras -->\n).*?(?=<!-- end -->)", lambda match: match[1] + extras.table(), text, flags=re.DOTALL
    )


def main() -> None:
    """Write or compare the pages."""
    texts = pages()
    if "--check" in sys.argv[1:]:
        present = {path.name: path.read_text() for path in DIRECTORY.glob("*.md")}
        fresh = present == texts and README.read_text() == readme()
        sys.exit(0 if fresh else "docs/reference or README.md is stale: run python tools/write_reference.py")
    DIRECTORY.mkdir(exist_ok=True)
    for path in DIRECTORY.glob("*.md"):
        path.unlink()
    for name, text in texts.items():
        (DIRECTORY / name).write_text(text)
    README.write_text(readme())


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    main()
