"""What makes an analysis of a small capture quick: there the cost is Spark's jobs, not their rows.

A small input's tables are collected and written by the driver, a fold's all from one job, in a session that plans for few rows.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.capture.files import captures
from mainstem.errors import CaptureError
from mainstem.spark.folds.fold import RTT
from mainstem.spark.report.parallel import in_parallel
from mainstem.spark.tables import (
    AQUEDUCT_FOLD,
    CHANNEL_FOLD,
    MUX_FOLD,
    PATH_FOLD,
    TABLES,
    TIME,
    naks,
    sources,
    status_messages,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from mainstem.capture.schema import Column
    from mainstem.spark.folds.fold import Fold
    from mainstem.spark.report.options import Inputs

# So much of captures makes some 300,000 frames of Aeron: 100 MB as Arrow.
SMALL_CAPTURE_BYTES = 16 << 20
# A frame of bymux takes as little as a byte.
SMALL_MUX_BYTES = 1 << 20
# Parquet packs: its size does not bound the rows.
SMALL_FRAMES_BYTES = 2 << 20
SMALL_FRAMES = 300_000
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    # Both pay for many rows and cost for each plan: several times what it takes to run the plan over these.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# For a JVM of its own that will not live long: compiled quickly rather than well.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def is_small(inputs: Inputs, ports: Mapping[str, str]) -> bool:
    """Whether all inputs together are so small; recordings never are: their size is not their files'."""
    import pyarrow.parquet as pq

    if inputs.recordings:
        return False
    has_mux = not {"bymuxports", "jmuxports"}.isdisjoint(name.lower() for name in ports)
    most = SMALL_MUX_BYTES if has_mux else SMALL_CAPTURE_BYTES
    try:
        files = [Path(file) for path in inputs.captures for file in captures(path)]
        frames = [file for path in inputs.frames for file in Path(path).glob("*.parquet")]
        if _bytes_of(files) > most or _bytes_of(frames) > SMALL_FRAMES_BYTES:
            return False
        rows: int = sum(pq.read_metadata(file).num_rows for file in frames)
        return rows <= SMALL_FRAMES
    except (CaptureError, OSError, ValueError):
        # An input that cannot be read is reported where it is read.
        return False


def _bytes_of(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def session_for(spark: SparkSession) -> SparkSession:
    """A session beside ``spark`` in the same application, with settings for small inputs."""
    from mainstem.spark import register

    own = spark.newSession()
    register(own)
    for name, value in SETTINGS.items():
        own.conf.set(name, value)
    own.conf.set("spark.sql.session.timeZone", spark.conf.get("spark.sql.session.timeZone"))
    return own


def collected(rows: DataFrame) -> Any:
    """A small DataFrame as an Arrow table."""
    return rows.toArrow()


def write(table: Any, folder: Path) -> None:
    """Replaces a table's folder by one file, in a form that Spark reads as its own."""
    import shutil

    import pyarrow.parquet as pq

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "part-0.parquet", coerce_timestamps="us")
    (folder / "_SUCCESS").touch()


def select(folded: Any, fold: Fold, name: str) -> Any:
    """``tables.select`` over what was collected."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from mainstem.spark.folds.run import ARROW

    rows = folded.filter(pc.equal(folded["kind"], pa.scalar(name))).combine_chunks()

    def values(column: Column, place: str) -> Any:
        if not place:
            empty: Any = pa.scalar("" if column.type == "string" else 0, ARROW[column.type])
            return pa.repeat(empty, rows.num_rows)
        struct, _, field = place.partition(".")
        array = pc.struct_field(rows[struct], field) if field else rows[struct]
        return pc.divide(array, 1000).cast(pa.timestamp("us", tz="UTC")) if column is TIME else array

    return pa.table({column.name: values(column, place) for column, place in sources(TABLES[name], fold)})


def write_tables(seen: DataFrame, folder: Path) -> list[str]:
    """Writes every table but ``frames`` and ``problems`` into ``folder``; returns their names."""
    import pyarrow as pa

    from mainstem.spark.folds.run import apply

    round_trips: dict[str, Any] = {}

    def plain(name: str, rows: DataFrame) -> list[str]:
        write(collected(rows), folder / name)
        return [name]

    def folded(fold: Fold) -> list[str]:
        rows = collected(apply(fold, seen))
        names = [kind.name for kind in fold.kinds if kind.name != RTT.name]
        for name in names:
            write(select(rows, fold, name), folder / name)
        if RTT in fold.kinds:
            round_trips[fold.name] = select(rows, fold, RTT.name)
        return names

    jobs: list[Callable[[], list[str]]] = [
        *(partial(folded, fold) for fold in (PATH_FOLD, MUX_FOLD, CHANNEL_FOLD, AQUEDUCT_FOLD)),
        partial(plain, "naks", naks(seen)),
        partial(plain, "status_messages", status_messages(seen)),
    ]
    names = in_parallel(seen.sparkSession, jobs)
    write(pa.concat_tables(round_trips[fold.name] for fold in (PATH_FOLD, MUX_FOLD)), folder / RTT.name)
    return [*(name for some in names for name in some), RTT.name]
