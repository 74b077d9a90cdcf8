"""Run an archive: Aeron's own clients record streams into a directory, list and replay them."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from mainstem._internal.open_files_limit import raise_open_files_limit
from mainstem._internal.units import parse_pairs
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.archive.server import ArchiveServer, ArchiveSettings
from mainstem.cli import _process
from mainstem.cli._options import ConfigOption, SetOption
from mainstem.cli._process import say, stopping

CHECK_S = 0.25


def run(
    directory: Annotated[Path, typer.Option("--dir", metavar="PATH", help="Where the recordings are.")],
    aeron_directory: Annotated[
        str, typer.Option("--aeron-dir", metavar="PATH", help="The media driver's directory.", show_default="AERON_DIR")
    ] = "",
    control: Annotated[
        str,
        typer.Option(
            "--control", metavar="URI", help="The UDP channel of requests.", show_default="localhost, port 8010"
        ),
    ] = "",
    with_driver: Annotated[
        bool, typer.Option("--with-driver", help="Start a media driver in --aeron-dir, and end it with the archive.")
    ] = False,
    config: ConfigOption = "",
    set_: SetOption = None,
) -> None:
    """Run an archive: Aeron's own clients record streams into a directory, list and replay them.

    Whoever reaches --control may record, replay and delete everything. It listens on localhost by default. Settings come from the
    defaults, the table `archive` of the TOML file, the environment (AERON_ARCHIVE_...), then these options.

    Example: mainstem archive --dir tides --control 'aeron:udp?endpoint=localhost:8010'
    """
    _process.configure(logging.WARNING)
    raise_open_files_limit()
    options: dict[str, dict[str, object]] = {"--set": {**parse_pairs(set_, name="--set")}}
    if control:
        options["--control"] = {"control_channel": control}
    settings = ArchiveSettings.load(toml=config or None, options=options)
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        if with_driver:
            aeron_directory = stack.enter_context(MediaDriver.launch(aeron_directory or None)).directory
        server = stack.enter_context(ArchiveServer.launch(directory, aeron_directory or None, settings=settings))
        where = ", ".join(server.control_addresses) or settings.local_control_channel
        say(f"archive {server.settings.id} in {directory}, requests on {where}")
        while not stop.requested and not server.wait(CHECK_S):
            pass
        if server.error is not None:
            raise server.error
