"""Private: recordings in a store: shipping, listing, reading, compaction and retention.

``docs/protocols/recordings.md, 8`` describes the layout. In the order of use: ``layout`` names objects, ``chunks`` and
``page_tree`` describe a recording, ``manifest`` commits it, ``shipper`` copies a directory to the store, and ``shipped_archive``
reads it there.
"""
