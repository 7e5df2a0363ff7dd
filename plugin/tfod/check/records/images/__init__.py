"""The encoded images of records: bytes go in, facts for the rules about images come out.

It may import what :mod:`tfod.check.records` may, and an image library where images are decoded.
"""
