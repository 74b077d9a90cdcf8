"""Run a media driver until Ctrl-C or SIGTERM."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aeron.driver.settings import DriverSettings, ThreadingMode
from mainstem.cli._logs import configure
from mainstem.cli._settings import SET, SetOption, assignments
from mainstem.errors import ConfigurationError

# How often the driver is checked for having been ended by a client.
CHECK_SECONDS = 0.25
# A loss generator needs a seed so that what it loses can be lost again.
DEFAULT_SEED = 1


def run(
    directory: Annotated[
        Path | None, typer.Option("--dir", "-d", help="The driver's directory (AERON_DIR, /dev/shm/aeron-USER).")
    ] = None,
    mode: Annotated[
        ThreadingMode | None, typer.Option("--mode", "-m", help="Which agents share a thread.", case_sensitive=False)
    ] = None,
    loss: Annotated[float, typer.Option(help="Share of datagrams to lose, both ways, for tests.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the loss.")] = DEFAULT_SEED,
    config: Annotated[Path | None, typer.Option(help="A TOML file with a table of settings named driver.")] = None,
    set_: SetOption = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print every setting at start.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log events to standard error.")] = False,
) -> None:
    """Run a media driver until Ctrl-C or SIGTERM.

    Settings come from the defaults, the TOML file, the environment (AERON_...), then these options.

    Example: mainstem driver --mode SHARED --set term_buffer_length=1m --print-config
    """
    configure(logging.INFO if verbose else logging.WARNING)
    settings = DriverSettings.load(toml=config, options=_options(directory, mode, loss, seed, set_))
    if print_config or settings.print_configuration:
        for setting in settings.explain_all():
            typer.echo(f"{setting.name} = {setting.value}  [{setting.origin}]")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with MediaDriver.launch(settings.dir, settings=settings, threads=True) as driver:
        typer.echo(f"media driver in {driver.directory}, {settings.threading_mode.value}; Ctrl-C ends it")
        if settings.threading_mode is ThreadingMode.INVOKER:
            while driver.is_running and not stop.is_set():
                driver.do_work()
        else:
            while driver.is_running and not stop.wait(CHECK_SECONDS):
                pass


def _options(
    directory: Path | None, mode: ThreadingMode | None, loss: float, seed: int, words: list[str] | None
) -> dict[str, dict[str, object]]:
    """The options as settings, by the option."""
    options: dict[str, dict[str, object]] = {SET: {**assignments(words)}}
    if directory is not None:
        options["--dir"] = {"dir": str(directory)}
    if mode is not None:
        options["--mode"] = {"threading_mode": mode.value}
    if loss:
        if not 0.0 <= loss < 1.0:
            raise ConfigurationError(f"--loss {loss} is not a share from 0 to below 1")
        arguments = f"rate={loss}|seed={seed}"
        options["--loss"] = {
            "udp_channel_incoming_interceptors": "loss",
            "udp_channel_transport_bindings_loss_args": arguments,
        }
    return options
