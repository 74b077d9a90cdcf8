"""Aeron's client for asyncio; users import ``mainstem.aio``."""
