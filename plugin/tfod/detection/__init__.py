"""What a record says of an image: an Example and a label map in, a Detection out, and back again.

It may import ``example`` and ``tfrecord``.
"""
