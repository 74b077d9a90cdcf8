"""Aeron's client for asyncio; ``mainstem.aio`` is its public door."""
