"""Annotations of an image: an Example and a label map to a Detection, and back.

May import ``example`` and ``tfrecord``.
"""
