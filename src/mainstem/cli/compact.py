"""Join the small files of a Delta or Iceberg table, and delete those that no reader needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from mainstem.cli._options import TABLE_OPTIONS, JsonOption, argument, check_store_options, duration
from mainstem.cli._output import pick, print_json
from mainstem.cli._process import say
from mainstem.spark.ingest.options import TableOptions

LOCATION = argument("Path or URL of a Delta table; with --table, of an Iceberg warehouse.", "LOCATION")


def run(
    *,
    options: Annotated[TableOptions, {"out": LOCATION, **TABLE_OPTIONS}],
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
    from mainstem.spark.ingest.target import open_table

    check_store_options(options.store_options, str(options.out))
    is_iceberg = bool(options.table or options.catalog or options.catalog_options)
    options = replace(options, format="iceberg" if is_iceberg else "delta")
    options.check()
    result = open_table(options).compact(keep_s=delete_older_than)
    row = pick(result, "replaced by deleted")
    print_json(row) if as_json else say("{replaced:,} files replaced by {by:,}; {deleted:,} deleted".format_map(row))
