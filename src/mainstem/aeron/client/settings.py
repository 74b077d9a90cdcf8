"""The settings of an Aeron client (docs/protocols/aeron.md, 24), with the reference's environment variables."""

from __future__ import annotations

import os
import sys
from typing import ClassVar

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.aeron.directory import user_directory
from mainstem.settings import Settings, boolean, duration, text

MAX_PROGRAM_NAME = 80  # letters: names of the reference's clients have at most 100, and the process id follows


def default_client_name() -> str:
    """Return the program's name and process id, such as ``prices.py-4711``."""
    path = sys.argv[0] if getattr(sys, "argv", None) else ""
    name = os.path.basename(path)
    if name == "__main__.py":
        name = os.path.basename(os.path.dirname(path))
    if not name or name.startswith("-"):
        name = "python"
    plain = "".join(letter if letter.isprintable() and not letter.isspace() else "_" for letter in name)
    return f"{plain[:MAX_PROGRAM_NAME]}-{os.getpid()}"


class ClientSettings(Settings):
    """The settings of a client. Durations are in nanoseconds; the TOML table is ``[client]``.

    ``mainstem config explain`` prints the meaning, default and limits of each one; ``explain`` returns the same.

    Example:
        >>> aeron = Aeron.connect(settings=ClientSettings.load(client_name="pricing"))
    """

    SECTION: ClassVar[str] = "client"
    ENV_PREFIX: ClassVar[str] = "AERON_"
    CLAMPS: ClassVar[bool] = True

    dir: str = text(user_directory, "The driver's directory.", accepts="the path of a directory")
    driver_timeout_ns: int = duration(
        10 * NS_PER_SECOND,
        "How old the driver's heartbeat may be before it is presumed dead; the longest wait for a response.",
        low=NS_PER_MS,
        plain_unit="ms",
    )
    client_name: str = text(
        default_client_name, "The client's name, which tools show; by default the program's name and its process id."
    )
    client_idle_sleep_duration_ns: int = duration(
        16 * NS_PER_MS, "How long the client's conductor sleeps when it has nothing to do."
    )
    client_resource_linger_duration_ns: int = duration(
        3 * NS_PER_SECOND, "How long the log of an image that ended stays mapped."
    )
    client_pre_touch_mapped_memory: bool = boolean(
        False, "Whether every page of a log is touched when it is mapped, so that no later access waits for it."
    )
    require_own_driver: bool = boolean(
        False,
        "Whether a driver's directory that belongs to another user is refused; by default the client logs a warning.",
    )
