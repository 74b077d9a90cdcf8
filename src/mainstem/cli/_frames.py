"""How frames are printed: a line for each header, and the payload in hexadecimal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from mainstem.aeron.tools.log_walk import LogFrame

HEX_LINE = 16
HEADINGS = f"{'position':>20} {'term':>11} {'offset':>13} {'length':>12} {'type':>5} {'flag':4} reserved"


def show_frames(out: Console, shown: list[LogFrame]) -> None:
    if not shown:
        out.print("no frames")
        return
    out.print(Text(HEADINGS, style="bold"))
    for frame in shown:
        length = f"{frame.length:,}{' open' if frame.length < 0 else ''}"
        out.print(
            Text(
                f"{frame.position:>20,} {frame.term_id:>11} {frame.term_offset:>13,} {length:>12} {frame.type_name:>5} "
                f"{frame.flag_letters} {frame.reserved_value}"
            )
        )
        for line in hex_lines(frame.payload):
            out.print(Text("    " + line))


def hex_lines(data: bytes) -> Iterator[str]:
    """Offset, sixteen bytes in hexadecimal, and what of them can be printed."""
    for at in range(0, len(data), HEX_LINE):
        part = data[at : at + HEX_LINE]
        letters = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
        yield f"{at:04x}  {part.hex(' '):<{HEX_LINE * 3 - 1}}  {letters}"
