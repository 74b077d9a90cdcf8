"""Private: what the operator's commands compute from any driver's directory.

``reading`` takes snapshots; everything else computes on snapshots and needs no process.
"""
