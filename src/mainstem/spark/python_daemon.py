"""Makes the workers of PySpark's daemon end quietly when the JVM closes their connection.

The JVM closes the connection of a worker that has been idle for a minute, or whose other rows a query does not need (``limit``).
The worker then tries to report the lost connection over that connection. With a Unix socket, unlike TCP, this fails at once, and
PySpark's daemon prints a traceback with BrokenPipeError beside a successful query. The setting ``spark.python.daemon.module`` does
not help: Spark ignores it for the workers that plan a source.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

DAEMON = "pyspark.daemon"


def end_quietly() -> None:
    """In a worker of PySpark's daemon, take a lost connection for an exit code. Elsewhere, do nothing."""
    main: Any = sys.modules["__main__"]
    run_task = getattr(main, "worker", None)  # None while the daemon itself is imported
    is_daemon = getattr(getattr(main, "__spec__", None), "name", None) == DAEMON
    if not is_daemon or run_task is None or hasattr(run_task, "__wrapped__"):
        return

    @functools.wraps(run_task)
    def worker(*arguments: Any) -> int:
        try:
            code: int = run_task(*arguments)
        except BrokenPipeError:
            # The buffers that go with it cannot be flushed either, which Python 3.13 reports. The process ends now.
            sys.unraisablehook = lambda _: None
            return 1
        return code

    # A worker runs one task after another, and looks the function up for each.
    main.worker = worker
