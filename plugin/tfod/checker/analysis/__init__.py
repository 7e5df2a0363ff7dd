"""The records of a shard: batches for the rules go in, a ``ShardResult`` comes out.

It may import ``detection`` and what is below it, and the findings, profiles and rules of
``checker``.
"""
