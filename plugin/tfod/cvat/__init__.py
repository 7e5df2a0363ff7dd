"""A Django app that gives "TFRecord 1.0" back to a CVAT server, without a change to CVAT.

Put the folder that holds ``tfod`` on ``PYTHONPATH`` and set
``DJANGO_SETTINGS_MODULE=tfod.cvat.settings``; see ``docs/cvat.md``. Works on CVAT 2.11 to 2.73 with
what their images hold: NumPy, protobuf, google-crc32c, Datumaro of either line.

It may import every room but ``cli``: ``apps`` waits for CVAT's registry of formats, ``formats``
registers ours, ``export`` and ``upload`` do the work with ``tfod.datumaro`` and ``tfod.check``.
"""
