"""COCO's JSONs, and the PNGs of its panoptic segments, come in; shards and a label map go out.

It may import what :mod:`tfod.shards.create` may.
"""
