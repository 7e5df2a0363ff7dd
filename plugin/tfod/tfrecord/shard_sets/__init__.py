"""Shard sets: finding and grouping shards, and the names of their files.

It imports :mod:`tfod.tfrecord.storage` and the readers of shards.
"""
