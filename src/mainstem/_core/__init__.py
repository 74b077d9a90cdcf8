"""The compiled part, private: pointers and atomics live here and nowhere else (ARCHITECTURE.md, "The compiled part")."""
