"""Repairing shards: what ``tfod check`` finds and can be fixed without guessing.

A source in, a folder of shards and a report of what was changed and what is left out. A fix is a
function over a record that yields changes. It may import what :mod:`tfod.shards` may.
"""

from tfod.shards.repair.run import Options, Outcome, repair

__all__ = ["Options", "Outcome", "repair"]
