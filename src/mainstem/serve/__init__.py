"""Private: ``mainstem serve``, a directory of recordings over HTTP range requests, read-only (docs/recordings.md, "serve").

aiohttp is the server library: of those that are well kept it is the one that hands a range of a file to the kernel
(``sendfile``) on an ordinary asyncio loop. ASGI servers copy every byte through Python, or send whole files only. What it does
not limit by itself, the time for a request's head, connections of one address, and how slowly a peer may read, is limited here.
"""
