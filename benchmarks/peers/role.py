"""The protocol between the harness and a peer: options as key=value, a line "ready", and results as one line of JSON.

Imports only the standard library, because a peer can run under a different Python.
"""

from __future__ import annotations

import json
import sys
from typing import TypeVar

T = TypeVar("T")


def options(kind: type[T]) -> T:
    """Parse the command line after the role's name into an instance of ``kind``. Its defaults determine the types."""
    defaults = kind()
    pairs = (word.partition("=") for word in sys.argv[2:])
    return kind(**{key: type(getattr(defaults, key))(value) for key, _, value in pairs})


def ready() -> None:
    """Tell the harness to continue."""
    print("ready", flush=True)


def report(**figures: float) -> None:
    """Print the result of this role."""
    print(json.dumps(figures), flush=True)
