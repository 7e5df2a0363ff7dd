"""The formats that Datumaro gets from tfod: each its importer and exporter with their options.

Datumaro's items go in, shards and label maps come out, and back. May import ``datumaro``'s other
modules, ``formats``, ``detection``, ``example`` and ``tfrecord``.
"""
