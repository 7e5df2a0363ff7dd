"""Input of training: shards in; a dataset of ``tf.data`` or of PyTorch out.

They are imported as ``tfod.tensorflow`` and ``tfod.torch``.

It may import ``sources`` and what is below it.
"""
