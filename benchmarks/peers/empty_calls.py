"""One call per message of a compiled method that does nothing: the upper limit for one call per message."""

from __future__ import annotations

import time
from collections import deque

from common import CHECK_EVERY, Options, ready, report, run, send_for


def sub(options: Options) -> None:
    ready()
    call, payload = deque[bytes](maxlen=0).append, bytes(options.size)

    def send() -> None:
        for _ in range(CHECK_EVERY):
            call(payload)

    started = time.monotonic()
    count = send_for(options.seconds, send)
    report(rate=count / (time.monotonic() - started))


def pub(options: Options) -> None:
    del options
    report(sent=0)


if __name__ == "__main__":
    run({"sub": sub, "pub": pub})
