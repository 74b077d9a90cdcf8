"""bymux and Jmux: their queues, and what happens once for each packet."""
