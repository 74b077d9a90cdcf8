"""What clients ask of the driver, and what it answers: the records of the CnC file's two buffers (behaviour, sections 5 and 6)."""
