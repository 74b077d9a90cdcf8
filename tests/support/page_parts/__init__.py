"""What blocks of a page find when they begin: the programs that run before them, unseen by readers (``tests/support/pages.py``)."""
