"""The encoded images of records: bytes go in, facts for the rules about images come out.

The room imports `tfod.detection.images`, and an image library only where images are decoded.
"""
