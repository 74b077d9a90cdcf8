"""Join the small files of a Delta or Iceberg table, and delete those that no reader needs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mainstem._internal.units import parse_pairs
from mainstem.cli._options import (
    CatalogOption,
    CatalogOptions,
    FileSizeOption,
    JsonOption,
    StoreOption,
    TableOption,
    duration,
    store_options,
)
from mainstem.cli._process import say


def run(
    location: Annotated[
        str, typer.Argument(help="Path or URL of a Delta table; with --table, of an Iceberg warehouse.")
    ] = "",
    table: TableOption = "",
    catalog: CatalogOption = "",
    catalog_option: CatalogOptions = None,
    store_option: StoreOption = None,
    target_file_size: FileSizeOption = 128 << 20,
    delete_older_than: Annotated[
        float | None,
        duration(
            "--delete-older-than",
            help="Delete files out of use for this long; it must be longer than any reader or writer takes.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Join the small files of a Delta or Iceberg table, and delete those that no reader needs.

    Readers and writers go on meanwhile. It needs no Spark; --table names an Iceberg table, else it is a Delta table.

    Example: mainstem compact tides --delete-older-than 7d
    """
    from mainstem.spark.ingest.options import IngestOptions
    from mainstem.spark.ingest.target import open_table

    options = IngestOptions(
        source="",
        out=location,
        format="iceberg" if table else "delta",
        table=table,
        catalog=catalog,
        catalog_options=parse_pairs(catalog_option, name="--catalog-option"),
        # Nothing is read that a checkpoint would be for.
        checkpoint="none",
        store_options=store_options(store_option),
        target_file_size=target_file_size,
    )
    options.check()
    result = open_table(options).compact(keep_s=delete_older_than)
    if as_json:
        print(json.dumps({"replaced": result.replaced, "by": result.by, "deleted": result.deleted}))
    else:
        say(f"{result.replaced:,} files replaced by {result.by:,}; {result.deleted:,} deleted")
