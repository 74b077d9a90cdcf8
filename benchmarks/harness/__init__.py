"""What every benchmark shares: peers run in processes of their own, ratios taken pair by pair, one form of report."""
