"""Requests over Jmux that are executed at most once.

python examples/mux_requests.py
"""

from __future__ import annotations

from mainstem import jmux
from mainstem.errors import Aborted


def respond(session: jmux.ServerSession) -> None:
    """Respond in upper case; abort a request that begins with an exclamation mark."""
    request = session.read(-1)
    if request.startswith(b"!"):
        session.abort("half-way")
    else:
        session.write(request.upper())


def refuse(session: jmux.ServerSession) -> None:
    session.reject("too busy")


def main() -> None:
    with (
        jmux.serve(respond, "127.0.0.1", 0) as server,
        jmux.serve(refuse, "127.0.0.1", 0) as busy,
        jmux.connect("127.0.0.1", server.port) as client,
        jmux.connect("127.0.0.1", busy.port) as refused,
    ):
        print(client.request(b"tide"))
        for sender, request in ((client, b"!"), (refused, b"x")):
            try:
                sender.request(request)
            except Aborted as error:
                print(f"{error}; may be sent again: {error.may_retry}")


if __name__ == "__main__":
    main()
