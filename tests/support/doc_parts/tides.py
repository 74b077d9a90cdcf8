"""Nothing: the page makes its recordings itself."""
