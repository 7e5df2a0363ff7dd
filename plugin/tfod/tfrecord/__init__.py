"""The shard: files, sets, zips and URLs in, records with their offsets out, and back again.

It may import nothing of tfod but ``errors``; it knows bytes and names, and no Example.
"""
