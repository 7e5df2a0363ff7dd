"""Shards from the annotations of other formats, as the OD API's own scripts make them.

``python object_detection/dataset_tools/create_{pascal,coco,kitti,oid}_tf_record.py`` without
TensorFlow: what the OD API's trainer reads from these shards is what it reads from those. Where
they differ on purpose, the docstring of the module says so, and ``docs/recipes``. It may import
what :mod:`tfod.shards` may.
"""
