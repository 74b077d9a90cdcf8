"""Private: the computations behind the operator's commands, which work on any driver's directory.

``reading`` takes snapshots. Everything else computes on snapshots and does not need a running process.
"""
