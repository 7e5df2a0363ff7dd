"""The queue and what works on it: an upload goes in, the documents of its report come out.

The room may import ``tfod.check``, the settings and ``serve``, and nothing of Flask.
"""
