"""What changes shards and looks into them: reshard, diff, describe, repair and show.

Files appear together or not at all. It may import ``checker``, ``formats``, ``sources`` and what is
below them.
"""
