"""A common vocabulary for five protocol families: the name of each concept in each family.

``tests/form/test_vocabulary.py`` compares this table with the code, in both variants; ``docs/reference/vocabulary.md`` shows it.
A name is a member of the package (``connect``) or of a class (``Server.wait``). Text in parentheses says why there is no name.
"""

from __future__ import annotations

FAMILIES = {
    "Aeron": "mainstem",
    "bymux": "mainstem.bymux",
    "Jmux": "mainstem.jmux",
    "Aqueduct": "mainstem.aqueduct",
    "duologue": "mainstem.duologue",
}

CONCEPTS: dict[str, tuple[str, str, str, str, str]] = {
    "connect": ("connect", "connect", "connect", "connect", "connect"),
    "serve": ("Responder.serve", "serve", "serve", "serve", "serve"),
    "run until stopped": (
        "(a driver runs until it is closed)",
        "Server.wait",
        "Server.wait",
        "Server.wait",
        "Server.wait",
    ),
    "stop accepting, let handlers finish": (
        "(requests are independent: `close`)",
        "Server.shutdown",
        "Server.shutdown",
        "Server.shutdown",
        "Server.shutdown",
    ),
    "stop serving": ("Responder.close", "Server.close", "Server.close", "Server.close", "Server.close"),
    "stop serving at once": (
        "(`close` waits for nobody)",
        "Server.abort",
        "Server.abort",
        "Server.abort",
        "Server.abort",
    ),
    "what a program connected": ("Aeron", "Connection", "Client", "Connection", "Client"),
    "what carries its data": ("Publication", "Stream", "ClientSession", "Sender", "Client"),
    "send a message": ("Publication.send", "(bytes)", "(bytes, or `request`)", "Sender.send", "Client.send"),
    "receive a message": (
        "Subscription.messages",
        "(bytes)",
        "(bytes, or `request`)",
        "Receiver.receive",
        "Client.receive",
    ),
    "read bytes": (
        "(messages)",
        "Stream.read, Stream.readexactly",
        "ClientSession.read, ClientSession.readexactly",
        "(messages)",
        "(messages)",
    ),
    "write bytes": ("(messages)", "Stream.write", "ClientSession.write", "(messages)", "(messages)"),
    "request and response": ("Requester.request", "(streams)", "Client.request", "(channels)", "(messages)"),
    "send without waiting": ("Publication.offer", "(bytes)", "(bytes)", "Sender.try_send", "Client.try_send"),
    "receive without waiting": (
        "Subscription.poll",
        "(bytes)",
        "(bytes)",
        "Receiver.try_receive",
        "Client.poll",
    ),
    "end my direction": (
        "Publication.close",
        "Stream.finish",
        "ClientSession.finish",
        "Sender.finish",
        "(an Aeron stream has one direction: `close`)",
    ),
    "close": ("Publication.close", "Stream.close", "ClientSession.close", "Sender.close", "Client.close"),
    "close the connection": ("Aeron.close", "Connection.close", "Client.close", "Connection.close", "Client.close"),
    "give up at once": ("Publication.revoke", "Stream.abort", "ClientSession.abort", "Sender.abort", "Client.abort"),
    "is it closed": ("Publication.closed", "Stream.closed", "ClientSession.closed", "Sender.closed", "Client.closed"),
    "what ended it": ("Publication.error", "Stream.error", "ClientSession.error", "Sender.error", "Client.error"),
    "the other end": (
        "(a stream has many: `Image.source_identity`)",
        "Connection.peer_address",
        "Client.peer_address",
        "Connection.peer_address",
        "Client.peer_address",
    ),
    "its certificate": (
        "(no TLS)",
        "Connection.peer_certificate",
        "Client.peer_certificate",
        "Connection.peer_certificate",
        "(a server's key: `ServerKey`)",
    ),
    "figures": ("Publication.stats", "Connection.stats", "Client.stats", "Connection.stats", "Client.stats"),
    "figures of a server": ("Responder.stats", "Server.stats", "Server.stats", "Server.stats", "Server.stats"),
    "limits and times": ("ClientSettings", "Settings", "Settings", "Settings", "Settings"),
}


def table() -> str:
    """Return the table in Markdown."""
    lines = [f"| concept | {' | '.join(FAMILIES)} |", f"| --- |{' --- |' * len(FAMILIES)}"]
    for concept, cells in CONCEPTS.items():
        shown = [
            cell[1:-1] if cell.startswith("(") else ", ".join(f"`{name.strip()}`" for name in cell.split(","))
            for cell in cells
        ]
        lines.append(f"| {concept} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"
