"""Analysis of the records of a shard: batches for the rules, and the ``ShardResult``.

May import ``detection`` and the packages below it, and the findings, profiles and rules of
``checker``.
"""
