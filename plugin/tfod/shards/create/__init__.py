"""Annotations of other formats in, shards with label maps out.

It may import what :mod:`tfod.shards` may. It stands for the OD API's
``object_detection/dataset_tools/create_{pascal,coco}_tf_record.py``, without TensorFlow:
the trainer reads from these shards what it reads from theirs. Where they differ on purpose, the
docstring of the module says so, and ``docs/recipes``.
"""
