"""The extras, for docs/reference/extras.md and the README: what each enables, how much it installs, and what needs it."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# extra: what it enables, how many megabytes it installs (CPython 3.11, x86-64), and the imports and commands that need it.
EXTRAS = {
    "cli": ("the `mainstem` command, its live views and its HTTP servers", 30, "every command; OpenTelemetry metrics"),
    "tables": (
        "Arrow, Polars and DuckDB",
        480,
        "`open_recordings(...).to_polars()`, `offer_arrow`, `poll_arrow`; `mainstem export`, `analyze`",
    ),
    "stores": ("object stores and HTTP", 20, "recordings and captures at URLs; `mainstem ship`"),
    "spark": ("Apache Spark, with a Java runtime", 880, "`mainstem.spark`; `mainstem ingest`"),
    "lakehouse": ("Delta and Iceberg tables", 720, "`mainstem ingest --format delta` or `iceberg`, `mainstem compact`"),
    "codecs": ("Avro, Protobuf and MessagePack", 20, "these codecs; JSON, CSV and SBE need no extra"),
    "quic": ("QUIC, certificates and serializers", 30, "`mainstem.aqueduct`; `mainstem cert`"),
    "encryption": ("cryptography", 20, "encrypted duologues; `mainstem cert`"),
    "all": ("everything", 1440, "`mainstem demo`"),
}


def table() -> str:
    """Return the table of extras, which must match pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    different = set(EXTRAS) ^ set(project["optional-dependencies"])
    if different:
        raise ValueError(f"pyproject.toml and tools/extras.py have different extras: {', '.join(sorted(different))}")
    rows = (f"| `{name}` | {enables} | {size:,} MB | {needs} |\n" for name, (enables, size, needs) in EXTRAS.items())
    return "| extra | enables | installs | needed by |\n| --- | --- | --- | --- |\n" + "".join(rows)


def page() -> str:
    """Return the reference page."""
    return (
        "# Extras\n\nMainstem itself has no dependencies. Install extras by name: `pip install '.[cli,tables]'` in a clone."
        " `MissingExtraError` names a missing\none, and `mainstem doctor` lists what is installed. The sizes include"
        " everything that an extra requires.\n\n" + table()
    )
