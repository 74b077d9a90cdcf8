"""Private: a stream's recordings, then the live stream, as one subscription.

``session.py`` joins the two for one publisher, whose recordings ``history.py`` reads; ``stream.py`` has the policy over all of
them; ``subscription.py`` and ``aio.py`` are the public classes.
"""
