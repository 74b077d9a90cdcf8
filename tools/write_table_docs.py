"""Writes the columns of every table into docs/analyze.md, from the definitions; ``--check`` fails where they differ."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs" / "analyze.md"
MARK = "<!-- tables: written by tools/write_table_docs.py -->\n"


def described() -> str:
    """Every table as Markdown."""
    from mainstem.spark.tables import TABLES

    parts = []
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


def main() -> None:
    """Writes, or checks."""
    text = DOCS.read_text(encoding="utf-8")
    expected = text.partition(MARK)[0] + MARK + described()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if text == expected else f"{DOCS.relative_to(ROOT)} is not what tools/write_table_docs.py writes")
    DOCS.write_text(expected, encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    main()
