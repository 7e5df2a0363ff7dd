"""What changes shards: create, convert, reshard, diff, describe, repair and show.

Shards and other annotations in, shards out: files appear together or not at all. It may import
``check``, ``convert``, ``detection`` and what is below them; a runner of ``beam`` is passed in.
"""
