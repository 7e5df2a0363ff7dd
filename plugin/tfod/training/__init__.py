"""Datasets of ``tf.data`` and PyTorch, to import as ``tfod.tensorflow`` and ``tfod.torch``.

May import ``sources`` and the packages below it.
"""
