"""The formats of tfod for Datumaro: importers and exporters, with their options.

May import ``datumaro``'s other modules, ``formats``, ``detection``, ``example`` and ``tfrecord``.
"""
