"""Name resolution: ``name_resolver`` for channels, and ``driver_name_resolver`` for the names of other drivers."""
