"""Private: what was recorded of a stream, and then the stream itself, as one subscription.

``session.py`` joins the two for one publisher, whose recordings ``history.py`` reads; ``stream.py`` has the policy over all of
them; ``subscription.py`` and ``aio.py`` are what users hold.
"""
