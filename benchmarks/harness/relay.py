"""The lossy relay of ``peers/lossy_relay.py`` as a process."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.processes import END_TIMEOUT_S, PEERS

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def relaying(**options: Any) -> Iterator[None]:
    """Run a relay with these options until the block ends."""
    words = [f"{key}={value}" for key, value in options.items()]
    process = subprocess.Popen(
        [sys.executable, str(PEERS / "lossy_relay.py"), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the relay did not start")
        yield
    finally:
        try:
            process.communicate("\n", timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
