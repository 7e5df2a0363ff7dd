"""Sets of shards: files, folders and patterns go in, ordered shards and their parts come out.

The room imports `tfod.tfrecord.storage` and what reads a shard.
"""
