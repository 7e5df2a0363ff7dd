"""Records: the bytes of a ``tf.train.Example`` to features by key, and back.

May import ``tfrecord``. It knows keys and lists of values, but no boxes.
"""
