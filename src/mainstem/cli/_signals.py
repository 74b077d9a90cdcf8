"""How a command in an event loop learns that it was asked to end."""

from __future__ import annotations

import asyncio
import signal


def asked_to_end() -> asyncio.Event:
    """Returns what SIGINT and SIGTERM set from now on, in the running event loop.

    Call it before the command says that it serves: a supervisor may end it at once then.
    """
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    return asked
