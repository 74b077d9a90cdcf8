"""What a page of the documentation needs around it, as comments before its blocks say (``tests/support/doc_runner.py``)."""
