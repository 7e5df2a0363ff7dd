"""Writers of other formats: subsets of images come in, files of COCO, Pascal VOC, YOLO and CVAT
come out.

It may import ``convert``, ``detection`` and what is below it.
"""
