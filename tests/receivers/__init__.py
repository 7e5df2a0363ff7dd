"""Shards of ours in the code that reads them elsewhere: ``make test-receivers``."""
