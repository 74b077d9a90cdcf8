"""What the commands that write tables share: which table, of which format, where."""

from __future__ import annotations

from typing import Annotated

import typer

OutOption = Annotated[
    str,
    typer.Option("--out", "-o", help="The folder or URL of the table; of Iceberg the warehouse."),
]
FormatOption = Annotated[str, typer.Option("--format", "-f", help="parquet, delta or iceberg.")]
TableOption = Annotated[str, typer.Option("--table", help="Of Iceberg: the table's name, as in sea.tides.")]
CatalogOption = Annotated[
    str, typer.Option("--catalog", help="Of Iceberg: a catalog of pyiceberg's configuration; else a file in --out.")
]
CatalogOptions = Annotated[
    list[str] | None,
    typer.Option("--catalog-option", help="Of Iceberg: an option of the catalog, as in uri=http://x:8181; repeatable."),
]
CheckpointOption = Annotated[
    str, typer.Option("--checkpoint", help="The folder where Spark keeps what is read; by default in --out.")
]
EvolveOption = Annotated[bool, typer.Option("--evolve", help="Add the columns that the table lacks.")]
FileSizeOption = Annotated[
    str, typer.Option("--target-file-size", help="Of delta and iceberg: the size of a data file, as in 128m.")
]
CompactEveryOption = Annotated[
    int,
    typer.Option("--compact-every", min=0, help="Of delta and iceberg: join small files after so many micro-batches."),
]
