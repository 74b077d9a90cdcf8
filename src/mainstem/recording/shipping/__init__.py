"""Private: recordings in a store: how they are shipped there, listed, read, compacted and removed.

``docs/protocols/recordings.md, 8`` is the layout. In order of use: ``layout`` names objects, ``chunks`` and ``page_tree`` describe
what a recording consists of, ``manifest`` commits it, ``shipper`` moves a directory there, ``shipped_archive`` reads it.
"""
