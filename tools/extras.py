"""The extras, for docs/reference/extras.md and the README: what each enables, and which imports and commands need it."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# extra: what it enables, and the imports and commands that need it.
EXTRAS = {
    "cli": ("the `mainstem` command, its live views and its HTTP servers", "every command; OpenTelemetry metrics"),
    "tables": (
        "Arrow, Polars and DuckDB",
        "`open_recordings(...).to_polars()`, `offer_arrow`, `poll_arrow`; `mainstem export`, `analyze`",
    ),
    "stores": ("object stores and HTTP", "recordings and captures at URLs; `mainstem ship`"),
    "spark": ("Apache Spark, with a Java runtime", "`mainstem.spark`; `mainstem ingest`"),
    "lakehouse": ("Delta and Iceberg tables", "`mainstem ingest --format delta` or `iceberg`, `mainstem compact`"),
    "codecs": ("Avro, Protobuf and MessagePack", "these codecs; JSON, CSV and SBE need no extra"),
    "quic": ("QUIC, certificates and serializers", "`mainstem.aqueduct`; `mainstem cert`"),
    "quic-aioquic": ("the same over aioquic", '`backend="aioquic"`'),
    "encryption": ("cryptography", "encrypted duologues; `mainstem cert`"),
    "all": ("everything", "`mainstem demo`"),
}


def table() -> str:
    """Return the table of extras, which must match pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    different = set(EXTRAS) ^ set(project["optional-dependencies"])
    if different:
        raise ValueError(f"pyproject.toml and tools/extras.py have different extras: {', '.join(sorted(different))}")
    rows = (f"| `{name}` | {enables} | {needs} |\n" for name, (enables, needs) in EXTRAS.items())
    return "| extra | enables | needed by |\n| --- | --- | --- |\n" + "".join(rows)


def page() -> str:
    """Return the reference page."""
    return (
        "# Extras\n\nMainstem itself has no dependencies. Install extras by name: `pip install '.[cli,tables]'` in a clone."
        " `MissingExtraError` names a missing\none, and `mainstem doctor` lists what is installed.\n\n" + table()
    )
