"""Catalogs of Iceberg tables: those that pyiceberg knows by name and options, or a file in a warehouse directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError, needs_extras
from mainstem.spark.formats.storage_options import iceberg_options
from mainstem.store import open_store
from mainstem.store.open_store import is_url

if TYPE_CHECKING:
    from collections.abc import Mapping

# The catalog of a warehouse directory, for the programs of one machine.
CATALOG_FILE, LOCAL_NAME = "catalog.db", "mainstem"


def open_catalog(
    warehouse: str, *, name: str = "", options: Mapping[str, str] | None = None, store: Mapping[str, str] | None = None
) -> Any:
    """Opens a catalog of pyiceberg.

    Args:
        warehouse: Where new tables go; empty for the place that the catalog chooses.
        name: The catalog's name in pyiceberg's own configuration; empty with ``options`` only, or for a file in the warehouse.
        options: Properties of the catalog, as ``uri``; they override those of the configuration.
        store: Options of the warehouse's store, by pyarrow's names or Hadoop's.

    Raises:
        ConfigurationError: There is no catalog of that name, or none for a warehouse that is not a directory.
        MissingExtraError: pyiceberg is not installed.
    """
    with needs_extras():
        from pyiceberg.catalog import load_catalog
    properties = {**iceberg_options(warehouse, store or {})} if warehouse or store else {}
    path = open_store(warehouse).local_path() if warehouse and not _is_remote(warehouse) else None
    if warehouse:
        properties["warehouse"] = path.resolve().as_uri() if path is not None else warehouse
    if name or options:
        return load_catalog(name or LOCAL_NAME, **{**properties, **(options or {})})
    if path is None:
        raise ConfigurationError(
            f"{warehouse or 'the table'}: a warehouse that is not a directory has a catalog elsewhere: --catalog names it"
        )
    path.mkdir(parents=True, exist_ok=True)
    return load_catalog(LOCAL_NAME, type="sql", uri=f"sqlite:///{path.resolve() / CATALOG_FILE}", **properties)


def _is_remote(warehouse: str) -> bool:
    return is_url(warehouse) and not warehouse.startswith("file:")
