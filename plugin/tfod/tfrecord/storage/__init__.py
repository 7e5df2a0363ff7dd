"""Storage: files, zip entries and URLs as streams, and the publishing of output files.

Of tfod, only ``errors`` and ``framing``, ``compression`` and ``damage`` may be imported here.
"""
