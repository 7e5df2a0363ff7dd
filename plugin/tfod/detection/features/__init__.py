"""The features of a record: descriptions, mappings of keys and the keys that are there, in and out.

The room imports what is in `tfod.detection.keys`, and the columns of `tfod.example`.
"""
