"""The record: the bytes of a ``tf.train.Example`` in, features by key out, and back again.

It may import ``tfrecord``; it knows keys and lists of values, and nothing of boxes.
"""
