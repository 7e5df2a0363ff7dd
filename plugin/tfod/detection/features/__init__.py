"""The features of a record: descriptions, mappings of keys and the keys that are there, in and out.

It may import ``example`` and what is below it, and the keys.
"""
