"""The owner of the driver's directory, who can read and change everything that the client sends and receives."""

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
    directory = context.settings.dir
    for path in (directory, cnc_path(directory)):
        if owner := context.files.foreign_owner(path):
            text = f"{path} belongs to user {owner}, who can read and change what this client sends and receives"
            if context.settings.require_own_driver:
                raise ConfigurationError(f"{text}; require_own_driver refuses that")
            return text
    return ""


def warn_of(foreign: str) -> None:
    if foreign:
        warn_once(log, foreign)
