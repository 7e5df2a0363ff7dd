"""A Django app that gives "TFRecord 1.0" back to a CVAT server, without a change to CVAT.

Put the folder that holds ``tfod`` on ``PYTHONPATH`` and set
``DJANGO_SETTINGS_MODULE=tfod.cvat.django_settings``; see ``docs/cvat.md``. Works on CVAT
2.11 to 2.73 with what their images hold: NumPy, protobuf, google-crc32c, Datumaro of either line.

Tasks and frames of CVAT go out as shards, and uploaded shards become annotations. It may import
every room but ``cli``: ``apps`` waits for CVAT's registry of formats, ``server`` has the formats,
``client`` is ``tfod cvat``, and the other modules serve both.
"""
