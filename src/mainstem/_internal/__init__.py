"""Private modules that several packages use, each named for what it does."""
