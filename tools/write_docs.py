"""Write the generated pages: docs/reference, and the tables of other pages and the README, from their definitions.

docs/reference has a page for each public module, which is filled from docstrings when the site is built, and the tables of
``reference_tables.py``. ``--check`` only compares.
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
DOCS = ROOT / "docs"
DIRECTORY = DOCS / "reference"
README = ROOT / "README.md"
TABLES_MARK = "<!-- tables: written by tools/write_docs.py -->\n"
OPTIONS_END = "<!-- end of options -->\n"
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


def with_columns(text: str) -> str:
    """Return the page with every table's columns after its mark."""
    from mainstem.spark.tables import TABLES

    parts = [text.partition(TABLES_MARK)[0], TABLES_MARK]
    for table in TABLES.values():
        rows = "".join(f"| `{c.name}` | {c.type} | {c.meaning} |\n" for c in table.columns)
        kind = "Stateful. " if table.is_stateful else ""
        names = ", ".join(f"`{name}`" for name in table.identity)
        meaning = table.meaning[0].upper() + table.meaning[1:]
        parts.append(
            f"\n### `{table.name}`\n\n{meaning}. {kind}A row is named by {names}.\n\n"
            f"| column | type | meaning |\n| --- | --- | --- |\n{rows}"
        )
    return "".join(parts)


def with_options(text: str, source: str, kind: type) -> str:
    """Return the page with the options of a source between its marks."""
    from mainstem.spark.option_table import markdown

    mark = f"<!-- options of {source} -->\n"
    before, found, rest = text.partition(mark)
    _, ends, after = rest.partition(OPTIONS_END)
    if not found or not ends:
        sys.exit(f"found no marker for the options of {source}: {mark}{OPTIONS_END}")
    return f"{before}{mark}\n{markdown(kind)}\n{OPTIONS_END}{after}"


def table_pages() -> dict[Path, str]:
    """Return the pages that contain tables of columns or of Spark options."""
    from mainstem.spark.sinks.channels import ChannelOptions
    from mainstem.spark.sources.capture_options import CaptureOptions
    from mainstem.spark.sources.live import LiveOptions
    from mainstem.spark.sources.options import RecordingOptions

    texts = {
        DOCS / name: (DOCS / name).read_text(encoding="utf-8")
        for name in ("analyze.md", "spark-options.md", "capture.md")
    }
    texts[DOCS / "analyze.md"] = with_columns(texts[DOCS / "analyze.md"])
    for name, source, kind in (
        ("spark-options.md", "mainstem.recording", RecordingOptions),
        ("spark-options.md", "mainstem.live", LiveOptions),
        ("spark-options.md", "mainstem.channel", ChannelOptions),
        ("capture.md", "mainstem.capture", CaptureOptions),
    ):
        texts[DOCS / name] = with_options(texts[DOCS / name], source, kind)
    return texts


def texts() -> dict[Path, str]:
    """Return every generated page."""
    return {DIRECTORY / name: text for name, text in pages().items()} | table_pages() | {README: readme()}


def main() -> None:
    """Write or compare the pages."""
    expected = texts()
    removed = set(DIRECTORY.glob("*.md")) - expected.keys()
    if "--check" in sys.argv[1:]:
        changed = [path for path, text in expected.items() if not path.exists() or path.read_text() != text]
        stale = ", ".join(sorted(str(path.relative_to(ROOT)) for path in (*changed, *removed)))
        sys.exit(f"stale: {stale}; run make generate" if stale else 0)
    DIRECTORY.mkdir(exist_ok=True)
    for path in removed:
        path.unlink()
    for path, text in expected.items():
        path.write_text(text)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    main()
