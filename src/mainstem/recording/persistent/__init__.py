"""Private: a stream's recordings and then the live stream, as one subscription.

``session.py`` joins the two for one publisher, whose recordings ``history.py`` reads. ``stream.py`` coordinates all publishers.
The public classes are ``aeron/client/persistent_subscription.py`` and ``aeron/aio/persistent_subscription.py``.
"""
