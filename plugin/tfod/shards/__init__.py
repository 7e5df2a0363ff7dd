"""Commands on shards: describe, diff, repair, reshard and show.

May import ``checker``, ``formats``, ``sources`` and the packages below them.
"""
