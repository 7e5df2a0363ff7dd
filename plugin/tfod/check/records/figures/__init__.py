"""Figures of what the records hold: batches in, counts that are bounded and add up out."""
