"""Name resolution: ``name_resolver`` for channels, ``driver_name_resolver`` for the names of other drivers."""
