"""Whose driver a client attaches to: the owner of its directory can read and change all that the client sends and receives."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainstem._internal.once import warn_once
from mainstem.aeron.directory import cnc_path
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from mainstem.aeron.client.context import ClientContext

log = logging.getLogger("mainstem.aeron.client")


def foreign_driver(context: ClientContext) -> str:
    """Return a sentence if the driver's directory or CnC file belongs to another user who isn't root, else an empty string.

    Raises ConfigurationError with that sentence if the settings require the user's own driver.
    """
    directory = context.settings.dir
    for path in (directory, cnc_path(directory)):
        if owner := context.files.foreign_owner(path):
            text = f"{path} belongs to user {owner}, who can read and change what this client sends and receives"
            if context.settings.require_own_driver:
                raise ConfigurationError(f"{text}; require_own_driver refuses that")
            return text
    return ""


def warn_of(foreign: str) -> None:
    """Log the sentence, once."""
    if foreign:
        warn_once(log, foreign)
