"""Messages into rows, in Spark's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.codecs.parsers import as_codec
from mainstem.codecs.rows import DecodedRows
from mainstem.spark.ingest.layout import META

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.codecs import Codec
    from mainstem.codecs.parsers import Parser


class Parsing(DecodedRows):
    """What a Spark task does to the messages. Pickled to the workers."""

    def __init__(self, parser: Codec | Parser, schema: pa.Schema) -> None:
        super().__init__(as_codec(parser), schema, META[:-1])
