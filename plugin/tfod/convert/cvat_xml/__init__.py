"""CVAT's own XML, and frames as it has them: documents in, shapes and Detections out, and back.

It may import its own room, ``detection`` and what is below it.
"""
