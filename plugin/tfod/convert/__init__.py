"""Annotations of other formats (Pascal VOC, COCO, CSV, …): files in, typed values out, and back.

It may import ``detection`` and what is below it.
"""
