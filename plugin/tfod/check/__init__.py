"""The checker: shards, zips and folders in, a report with findings out.

It may import ``formats``, ``detection`` and what is below them; a runner of ``beam`` is
passed in.
"""
