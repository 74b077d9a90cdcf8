"""Byte-stream multiplexers: many streams over one connection.

``mainstem.mux.bymux`` carries symmetric byte streams with credit and heartbeats; ``mainstem.mux.jmux`` carries requests and
responses (the Jini ERI multiplexing protocol, version 1). Each is a sans-IO connection with an asyncio and a blocking API.
"""
