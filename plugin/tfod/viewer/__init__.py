"""Viewer of shards: its index of records, the local server of ``tfod show --serve``, and its page.

May import ``checker``, ``shards`` and the packages below them.
"""
