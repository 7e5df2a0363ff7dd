"""The records of one shard: batches go in, a ``Result`` comes out, findings and figures.

It may import ``detection`` and what is below it, and the rest of ``check`` but for its engine and
reporters.
"""
