"""Reading and writing of shards: files, shard sets, zips and URLs, as records with their offsets.

Of tfod, only ``errors`` and the kernel may be imported here. Payloads are bytes, not Examples.
"""
