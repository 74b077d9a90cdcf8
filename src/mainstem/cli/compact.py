"""Join the small files of a Delta or Iceberg table, and delete those that no reader needs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mainstem.cli._directory import JsonOption  # noqa: TC001 - typer reads the annotations
from mainstem.cli._logs import say
from mainstem.cli._recordings import StoreOption, pairs
from mainstem.cli._tables import (  # noqa: TC001 - typer reads the annotations
    CatalogOption,
    CatalogOptions,
    FileSizeOption,
    TableOption,
)
from mainstem.clock import NS_PER_SECOND
from mainstem.units import parse_duration_ns, parse_size


def run(
    place: Annotated[str, typer.Argument(help="A Delta table's folder or URL; with --table the warehouse.")] = "",
    table: TableOption = "",
    catalog: CatalogOption = "",
    catalog_option: CatalogOptions = None,
    store_option: StoreOption = None,
    target_file_size: FileSizeOption = "128m",
    delete_older_than: Annotated[
        str, typer.Option(help="Delete files out of use for so long, as in 7d: longer than any reader or writer takes.")
    ] = "",
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
        out=place,
        format="iceberg" if table else "delta",
        table=table,
        catalog=catalog,
        catalog_options=pairs(catalog_option, "--catalog-option"),
        # Nothing is read that a checkpoint would be for.
        checkpoint="none",
        store_options=pairs(store_option, "--store-option"),
        target_file_size=parse_size(target_file_size, name="--target-file-size"),
    )
    options.check()
    keep_s = (
        parse_duration_ns(delete_older_than, name="--delete-older-than") / NS_PER_SECOND if delete_older_than else None
    )
    result = open_table(options).compact(keep_s=keep_s)
    if as_json:
        print(json.dumps({"replaced": result.replaced, "by": result.by, "deleted": result.deleted}))
    else:
        say(f"{result.replaced:,} files replaced by {result.by:,}; {result.deleted:,} deleted")
