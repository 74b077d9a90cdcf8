"""Packet captures, read frame by frame: pcap and pcapng in; rows of Aeron, bymux and Jmux frames out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

__all__ = ["read_frames"]


def read_frames(
    path: str,
    names: Iterable[str] | None = None,
    *,
    aeron_ports: Iterable[int] | None = None,
    bymux_ports: Iterable[int] = (),
    jmux_ports: Iterable[int] = (),
) -> Iterator[pa.RecordBatch]:
    """The frames of a capture, of the captures in a folder, or of those that a pattern matches, as Arrow batches.

    ``names`` are columns of ``mainstem.capture.schema`` (None: all but ``payload``); the ports are those of ``reading.Wanted``.
    What is wrong with a file is a row (``protocol`` is ``problem``). Raises CaptureError where there is no capture or one
    cannot be opened, ConfigurationError for a column that there is not. Needs pyarrow and numpy.
    """
    from mainstem.capture.files import captures
    from mainstem.capture.index import build
    from mainstem.capture.reading import Wanted, frames
    from mainstem.capture.schema import arrow_schema, columns

    taken = tuple(column.name for column in columns()) if names is None else tuple(names)
    arrow_schema(taken)
    wanted = Wanted(
        names=taken,
        aeron_ports=None if aeron_ports is None else tuple(aeron_ports),
        bymux_ports=tuple(bymux_ports),
        jmux_ports=tuple(jmux_ports),
    )
    for file in captures(path):
        yield from frames(file, wanted, build(file))
