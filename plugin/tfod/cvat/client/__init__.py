"""``tfod cvat``: export from and import into CVAT servers without tfod, using cvat-sdk.

A server's export as CVAT's XML is converted to a zip of shards. A zip of shards is checked, compared
with the task and uploaded as CVAT's XML. May import ``checker`` and its dependencies, not
``datumaro``.
"""
