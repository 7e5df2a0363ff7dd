"""Formats of datasets, one module each with its reader and its writer; shards are one of them.

Modules here may import ``sources`` and the packages below it.
"""
