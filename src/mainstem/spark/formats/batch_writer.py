"""The function of ``foreachBatch``: a micro-batch into a table, once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError
from mainstem.spark.formats.base import DEFAULT_FILE_SIZE
from mainstem.spark.formats.data_files import FILE_DDL, WriteFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mainstem.spark.formats.base import Compaction, Table

log = logging.getLogger(__name__)


class BatchWriter:
    """Writes micro-batches to a table. One call is one commit; a call for a micro-batch that is committed does nothing.

    Args:
        table: The table.
        evolve: Whether columns that it lacks are added to it.
        target_bytes: The size at which a task begins another file.
        compact_every: Join small files after this many micro-batches; 0 for never.
        query_id: What the commits name the query; empty for the id in Spark's checkpoint.
    """

    def __init__(
        self,
        table: Table,
        *,
        evolve: bool = False,
        target_bytes: int = DEFAULT_FILE_SIZE,
        compact_every: int = 0,
        query_id: str = "",
    ) -> None:
        self._table, self._evolve, self._target = table, evolve, target_bytes
        self._compact_every, self._query_id = compact_every, query_id
        self._prepared = ""
        self.compactions: list[Compaction] = []

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query_id = self._query_id or query_id_of(batch)
        if self._table.committed(query_id) >= batch_id:
            return
        if (columns := batch.schema.json()) != self._prepared:
            self._table.prepare(batch.schema, evolve=self._evolve)
            self._prepared = columns
        names = batch.schema.names
        write = WriteFiles(self._table.files(query_id, batch_id), self._target, names)
        # mapInArrow resolves names, where a dot or a backtick means something else.
        numbered = batch.toDF(*(f"c{number}" for number in range(len(names))))
        # One row for each file comes to the driver.
        files = [bytes(row[0]) for row in numbered.mapInArrow(write, FILE_DDL).collect()]
        self._table.commit(query_id, batch_id, files)
        if self._compact_every and batch_id % self._compact_every == self._compact_every - 1:
            self._compact(batch_id)

    def _compact(self, batch_id: int) -> None:
        try:
            self.compactions.append(self._table.compact())
        except Exception as error:
            # The micro-batch is committed. Whatever the format's library raises, the next compaction joins these files too.
            log.warning("%s: cannot compact after micro-batch %d: %s", self._table.name, batch_id, error)


def query_id_of(batch: DataFrame) -> str:
    """The id of the streaming query that a micro-batch belongs to: the one in its checkpoint, the same after a restart.

    Raises:
        ConfigurationError: It is not a micro-batch of a streaming query.
    """
    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query_id:
        raise ConfigurationError("this is not a micro-batch of a streaming query: name one by query_id=")
    return str(query_id)
