"""``tfod cvat``: shards out of CVAT servers that one may not change, and back, with cvat-sdk.

A server's export as CVAT's XML becomes a zip of shards; a zip of shards is checked, compared with
the task and uploaded as CVAT's XML. May import ``checker`` and what is below it, not ``datumaro``.
"""
