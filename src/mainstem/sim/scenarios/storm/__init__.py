"""Private: everything at once. The scenario, and the workloads that run through it."""
