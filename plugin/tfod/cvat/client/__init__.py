"""``tfod cvat``: export from and import into CVAT servers that do not have tfod, using cvat-sdk.

A server's export as CVAT's XML is converted to a zip of shards. In the other direction a zip is
checked, compared with the task and uploaded as CVAT's XML. May import ``checker`` and its
dependencies, not ``datumaro``.
"""
