"""Private: what :mod:`mainstem.bymux` and :mod:`mainstem.jmux` share: transports, listeners, streams under asyncio and blocking."""
