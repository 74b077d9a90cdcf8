"""How the harness and a peer talk: options come as key=value, a line says "ready", results are one line of JSON.

Imports nothing but the standard library: a peer may run under another Python.
"""

from __future__ import annotations

import json
import sys
from typing import TypeVar

T = TypeVar("T")


def options(kind: type[T]) -> T:
    """The command line after the role's name as an instance of ``kind``, whose defaults give the types."""
    defaults = kind()
    pairs = (word.partition("=") for word in sys.argv[2:])
    return kind(**{key: type(getattr(defaults, key))(value) for key, _, value in pairs})


def ready() -> None:
    """Says that the harness may go on."""
    print("ready", flush=True)


def report(**figures: float) -> None:
    """The result of this role."""
    print(json.dumps(figures), flush=True)
