"""Repairing shards: what ``tfod check`` finds and can be mended without guessing."""

from tfod.shards.repair.run import Options, Outcome, repair

__all__ = ["Options", "Outcome", "repair"]
