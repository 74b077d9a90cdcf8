"""What an operator asks of a driver's directory, answered from the files alone, whoever the driver is.

``reading`` takes snapshots; everything else is arithmetic on snapshots and needs no process.
"""
