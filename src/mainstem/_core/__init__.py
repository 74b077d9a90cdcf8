"""Private: the compiled part. Pointers and atomics live here and nowhere else (ARCHITECTURE.md, "The compiled part")."""
