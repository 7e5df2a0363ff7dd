"""Where bytes lie: files, entries of zips and URLs in, streams out; and files that are published.

It may import nothing of tfod but ``errors`` and its room's ``framing`` and ``damage``.
"""
