"""Write tables of the documentation from their definitions: columns of tables, and options of Spark sources.

``--check`` fails if they differ.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MARK = "<!-- tables: written by tools/write_table_docs.py -->\n"
END = "<!-- end of options -->\n"


def with_columns(text: str) -> str:
    """Return the page with every table's columns after its mark."""
    from mainstem.spark.tables import TABLES

    parts = [text.partition(MARK)[0], MARK]
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
    _, ends, after = rest.partition(END)
    if not found or not ends:
        sys.exit(f"found no marker for the options of {source}: {mark}{END}")
    return f"{before}{mark}\n{markdown(kind)}\n{END}{after}"


def pages() -> dict[Path, str]:
    """Return the intended text of every page."""
    from mainstem.spark.sinks.channels import ChannelOptions
    from mainstem.spark.sources.capture_options import CaptureOptions
    from mainstem.spark.sources.live import LiveOptions
    from mainstem.spark.sources.options import RecordingOptions

    texts = {
        DOCS / name: (DOCS / name).read_text(encoding="utf-8") for name in ("analyze.md", "spark.md", "capture.md")
    }
    texts[DOCS / "analyze.md"] = with_columns(texts[DOCS / "analyze.md"])
    for name, source, kind in (
        ("spark.md", "mainstem.recording", RecordingOptions),
        ("spark.md", "mainstem.live", LiveOptions),
        ("spark.md", "mainstem.channel", ChannelOptions),
        ("capture.md", "mainstem.capture", CaptureOptions),
    ):
        texts[DOCS / name] = with_options(texts[DOCS / name], source, kind)
    return texts


def main() -> None:
    """Write or check the pages."""
    for page, expected in pages().items():
        if "--check" not in sys.argv[1:]:
            page.write_text(expected, encoding="utf-8")
        elif page.read_text(encoding="utf-8") != expected:
            sys.exit(f"{page.relative_to(ROOT)} is not what tools/write_table_docs.py writes: make generate")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    main()
