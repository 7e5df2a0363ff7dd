"""COCO's JSONs come in; shards and a label map go out.

It may import what :mod:`tfod.shards.create` may.
"""
