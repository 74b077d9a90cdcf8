"""Join the small files of a Delta or Iceberg table, and delete those that no reader needs."""

from __future__ import annotations

from typing import Annotated

from mainstem.cli._options import JsonOption, TableChoice, argument, duration
from mainstem.cli._output import pick, print_json
from mainstem.cli._process import say


def run(
    *,
    location: Annotated[str, argument("Path or URL of a Delta table; with --table, of an Iceberg warehouse.")] = "",
    table: TableChoice,
    delete_older_than: Annotated[
        float | None,
        duration(
            "--delete-older-than",
            "Delete files out of use for this long; it must be longer than any reader or writer takes.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Join the small files of a Delta or Iceberg table, and delete those that no reader needs.

    Readers and writers are not interrupted, and Spark is not needed. With --table it is an Iceberg table, otherwise a Delta table.

    Example: mainstem compact tides --delete-older-than 7d
    """
    from mainstem.spark.ingest.options import IngestOptions
    from mainstem.spark.ingest.target import open_table

    options = IngestOptions(
        source="",
        out=location,
        out_name="LOCATION",
        format="iceberg" if table.table or table.catalog or table.catalog_option else "delta",
        # Compacting reads no source, so it needs no checkpoint.
        checkpoint="none",
        **table.arguments(location),
    )
    options.check()
    result = open_table(options).compact(keep_s=delete_older_than)
    row = pick(result, "replaced by deleted")
    print_json(row) if as_json else say("{replaced:,} files replaced by {by:,}; {deleted:,} deleted".format_map(row))
