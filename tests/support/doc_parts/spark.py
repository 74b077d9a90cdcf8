"""A Spark session, a capture of a loss under the names that pages use, and the recordings ``tides``."""

from pathlib import Path

from tests.support.captures import loss
from tests.support.doc_parts import tides  # noqa: F401 - it writes them

from mainstem.spark import create_session, register

spark = create_session()
register(spark)
Path("captures").mkdir()
for name in ("capture.pcapng", "captures/day.pcapng"):
    Path(name).write_bytes(loss())
