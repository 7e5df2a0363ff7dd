"""What changes shards: create, reshard, merge, split, repair and show.

Shards and other annotations in, shards out: files appear together or not at all. It may import
``check``, ``convert``, ``detection`` and what is below them; a runner of ``beam`` is passed in.
"""
