"""Requests over Jmux that are executed at most once, from a caller that blocks.

python examples/mux_requests.py
"""

from __future__ import annotations

from mainstem import jmux
from mainstem._internal.loop_thread import LoopThread
from mainstem.errors import Aborted
from mainstem.jmux import blocking


async def serve(session: jmux.ServerSession) -> None:
    """Responds in upper case; aborts a request that begins with an exclamation mark."""
    request = await session.read(-1)
    if request.startswith(b"!"):
        session.abort("half-way")
    else:
        session.write(request.upper())


async def refuse(session: jmux.ServerSession) -> None:
    session.reject("too busy")


def main() -> None:
    thread = LoopThread()
    listener = thread.run(jmux.serve(serve, "127.0.0.1", 0))
    busy = thread.run(jmux.serve(refuse, "127.0.0.1", 0))
    with blocking.connect("127.0.0.1", listener.port) as client, blocking.connect("127.0.0.1", busy.port) as refused:
        print(client.call(b"tide"))
        for sender, request in ((client, b"!"), (refused, b"x")):
            with sender.request() as session:
                try:
                    session.write(request)
                    session.finish()
                    session.read(-1)
                except Aborted as error:
                    print(f"{error}; may be sent again: {session.may_retry}")
    thread.run(listener.close())
    thread.run(busy.close())
    thread.stop()


if __name__ == "__main__":
    main()
