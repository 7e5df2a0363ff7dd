"""Records: the bytes of a ``tf.train.Example`` to features by key, and back; knows no boxes."""
