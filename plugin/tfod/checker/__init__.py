"""The checker: shards, zips and folders in, a report with findings out.

It may import ``formats``, ``sources`` and what is below them; a runner of ``beam`` is
passed in.
"""
