"""Private: everything at once. The scenario, and what lives through it, each a class of its own behind ``Workload``."""
