"""Private: code that :mod:`mainstem.bymux` and :mod:`mainstem.jmux` share: transports, servers, asyncio and blocking streams."""
