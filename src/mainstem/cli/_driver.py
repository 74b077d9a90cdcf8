"""``mainstem driver`` without what reads its words: the options as a table, and the work.

A driver starts often: with a service, in every test, behind every example. Half of the time until its CnC file was there went into
the libraries that read words and print help. So plain words are read by the table here, and the driver starts at once; for
help, for a wrong word, and for any form that the table does not know, ``cli.main`` loads what reads all commands.
``tests/unit/cli/test_driver_words.py`` holds the two equal.
"""

from __future__ import annotations

import gc
import logging
import signal
import threading
from typing import TYPE_CHECKING, Any

from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aeron.driver.settings import DriverSettings, ThreadingMode
from mainstem.cli import _logs
from mainstem.cli._assignments import SET, assignments
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

# How often the driver is checked for having been ended by a client.
CHECK_SECONDS = 0.25
# A loss generator needs a seed so that what it loses can be lost again.
DEFAULT_SEED = 1


def _mode(text: str) -> ThreadingMode:
    return next(mode for mode in ThreadingMode if mode.value.lower() == text.lower())


# The parameter of an option and how its value is read; None for an option without one.
OPTIONS: dict[str, tuple[str, Callable[[str], Any] | None]] = {
    "--dir": ("directory", str),
    "-d": ("directory", str),
    "--mode": ("mode", _mode),
    "-m": ("mode", _mode),
    "--loss": ("loss", float),
    "--seed": ("seed", int),
    "--config": ("config", str),
    SET: ("set_", str),
    "-s": ("set_", str),
    "--print-config": ("print_config", None),
    "--verbose": ("verbose", None),
    "-v": ("verbose", None),
}


def read(words: Sequence[str]) -> dict[str, Any] | None:
    """Returns the parameters of ``run`` for plain words; None where something else has to read them."""
    parameters: dict[str, Any] = {}
    remaining = iter(words)
    for word in remaining:
        option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        parameter, convert = OPTIONS.get(option, ("", None))
        if not parameter:
            return None
        if convert is None:
            if equals:
                return None
            parameters[parameter] = True
            continue
        if not equals:
            value = next(remaining, "")
        if not value or value.startswith("-"):
            return None
        try:
            typed = convert(value)
        except (ValueError, StopIteration):
            return None
        if parameter == "set_":
            parameters.setdefault(parameter, []).append(typed)
        else:
            parameters[parameter] = typed
    return parameters


def run(
    directory: str | PathLike[str] | None = None,
    mode: ThreadingMode | None = None,
    loss: float = 0.0,
    seed: int = DEFAULT_SEED,
    config: str | PathLike[str] | None = None,
    set_: list[str] | None = None,
    print_config: bool = False,
    verbose: bool = False,
) -> None:
    """Runs a driver until SIGINT, SIGTERM or a client ends it."""
    _logs.configure(logging.INFO if verbose else logging.WARNING)
    settings = DriverSettings.load(toml=config, options=_options(directory, mode, loss, seed, set_))
    if print_config or settings.print_configuration:
        for setting in settings.explain_all():
            print(f"{setting.name} = {setting.value}  [{setting.origin}]")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with MediaDriver.launch(settings.dir, settings=settings, threads=True) as driver:
        gc.enable()
        print(f"media driver in {driver.directory}, {settings.threading_mode.value}; Ctrl-C ends it", flush=True)
        if settings.threading_mode is ThreadingMode.INVOKER:
            while driver.is_running and not stop.is_set():
                driver.do_work()
        else:
            while driver.is_running and not stop.wait(CHECK_SECONDS):
                pass


def _options(
    directory: str | PathLike[str] | None, mode: ThreadingMode | None, loss: float, seed: int, words: list[str] | None
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
