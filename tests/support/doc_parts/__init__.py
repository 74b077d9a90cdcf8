"""Setup code for documentation pages, selected by comments before their blocks (``tests/support/doc_runner.py``)."""
