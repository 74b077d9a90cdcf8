"""Private: what the operator's commands compute from the files of a driver's directory, of any driver.

``reading`` takes snapshots; everything else is arithmetic on snapshots and needs no process.
"""
