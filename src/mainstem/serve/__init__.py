"""Private: ``mainstem serve``, a directory of recordings over HTTP range requests, read-only (docs/recordings.md, "serve").

The server library is aiohttp. It is the only well-maintained one that lets the kernel send a range of a file (``sendfile``) on an
ordinary asyncio loop. ASGI servers copy every byte through Python, or send only whole files. This package adds the limits that
aiohttp does not have: the time for a request's head, the connections per address, and how slowly a peer may read.
A page of metrics sends no files, so ``mainstem.metrics`` has a small server of its own, which needs nothing but Python.
"""
