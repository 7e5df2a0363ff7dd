"""The checker: it reads shards, zips and folders, and returns a report with findings.

May import ``formats``, ``sources`` and the packages below them. ``beam`` passes in its runner.
"""
