"""Datasets of other formats, one file each with its reader and its writer, and shards like them.

It may import ``sources`` and what is below it.
"""
