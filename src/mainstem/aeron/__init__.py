"""Private: Aeron's client and driver. Users import ``mainstem`` and ``mainstem.aio``."""
