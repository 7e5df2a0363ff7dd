"""Input of training: shards in; datasets of ``tf.data`` and of PyTorch out.

They are imported as ``tfod.tensorflow`` and ``tfod.torch``.

It may import ``detection`` and what is below it.
"""
