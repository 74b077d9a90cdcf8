"""Private: the page of an analysis, and what other pages share with it."""
