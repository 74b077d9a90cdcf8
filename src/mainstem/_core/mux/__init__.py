"""bymux and Jmux: their queues, and the code that runs for each packet."""
