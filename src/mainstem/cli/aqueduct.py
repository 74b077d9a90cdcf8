"""Show Aqueduct's frames."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Annotated

import typer

from mainstem._internal.printable import printable
from mainstem.cli._options import App, argument, flag
from mainstem.errors import ConfigurationError

app = App(__doc__)


@app.callback()
def _commands() -> None:
    """Commands for Aqueduct."""


@app.command()
def dump(
    file: Annotated[Path, argument("A file; - reads standard input.", allow_dash=True)],
    as_hex: Annotated[bool, flag("--hex", "The file holds hexadecimal digits.")] = False,
) -> None:
    """Show frames as text: the bytes of one stream or datagram, or the log that an instrument wrote.

    Example: mainstem aqueduct dump frames.bin
    """
    from mainstem.aqueduct.observe import dump_frames, dump_log

    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    if data[:1] == b"{":
        lines = dump_log(iter(data.decode(errors="replace").splitlines()))
    else:
        try:
            lines = dump_frames(bytes.fromhex(data.decode("ascii")) if as_hex else data)
            first = next(lines, None)
        except ValueError:
            raise ConfigurationError(f"{file} holds no hexadecimal digits") from None
        lines = itertools.chain([] if first is None else [first], lines)
    for line in lines:
        typer.echo(printable(line))
