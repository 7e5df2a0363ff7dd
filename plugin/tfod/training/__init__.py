"""Input of training: shards in; a dataset of ``tf.data`` or of PyTorch out.

They are imported as ``tfod.tensorflow`` and ``tfod.torch``.

It may import ``detection`` and what is below it.
"""
