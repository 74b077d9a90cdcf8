"""What the growth benchmark measures, by the part of Mainstem that it belongs to."""
