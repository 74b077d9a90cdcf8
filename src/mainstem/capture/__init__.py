"""Packet captures: pcap and pcapng in, rows of Aeron, bymux and Jmux frames out."""

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
    """Read the frames of captures as Arrow batches; needs pyarrow and numpy.

    A row is one frame of Aeron, bymux or Jmux. A problem in a file is also a row, whose ``protocol`` is ``problem``. The last
    rows of a file (``PASSED_OVER``) count the packets without a row, one row for each reason, so every packet is in a row or
    counted.

    Args:
        path: A capture, a directory of captures, or a pattern. A pipe, or ``-`` for standard input, is copied to a temporary file.
        names: Columns of ``mainstem.capture.schema``; None for all but ``payload``.
        aeron_ports: UDP ports that carry Aeron; None for every port on which a whole datagram is valid Aeron, empty for none.
        bymux_ports: TCP ports of bymux servers, whose connections are otherwise not recognized.
        jmux_ports: TCP ports of Jmux servers.

    Yields:
        Batches of the named columns. Files come in order of their names, packets in order of the file.

    Raises:
        CaptureError: There is no capture at ``path``, or one cannot be opened.
        ConfigurationError: There is no column of that name.

    Example:
        ``rows = sum(batch.num_rows for batch in read_frames("tide.pcapng", ["frame_type"]))``
    """
    from mainstem.capture.files import captures, spooled
    from mainstem.capture.index import build
    from mainstem.capture.planning import FrameSelection
    from mainstem.capture.reading import frames
    from mainstem.capture.schema import arrow_schema, columns

    selected = tuple(column.name for column in columns()) if names is None else tuple(names)
    arrow_schema(selected)
    selection = FrameSelection(
        names=selected,
        aeron_ports=None if aeron_ports is None else tuple(aeron_ports),
        bymux_ports=tuple(bymux_ports),
        jmux_ports=tuple(jmux_ports),
        count_skipped=True,
    )
    with spooled(path) as whole:
        for file in captures(whole):
            yield from frames(file, selection, build(file))
