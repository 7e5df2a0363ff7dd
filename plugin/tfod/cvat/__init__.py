"""A Django app that adds "TFRecord 1.0" to a CVAT server, without a change to CVAT.

Put the folder that holds ``tfod`` on ``PYTHONPATH`` and set
``DJANGO_SETTINGS_MODULE=tfod.cvat.django_settings``; see ``docs/cvat.md``. Works on CVAT
2.11 to 2.73 with the packages of their images: NumPy, protobuf, google-crc32c, and Datumaro or
CVAT's fork of it.

May import every package except ``cli``: ``apps`` waits for CVAT's registry of formats, ``server``
contains the formats, ``client`` is ``tfod cvat``, and both share the other modules.
"""
