"""The deterministic simulator: manual time, a seeded network with faults, checkers; for Mainstem and for programs that use it."""
