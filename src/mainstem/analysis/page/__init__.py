"""Private: the HTML page of an analysis, and parts that other pages share."""
