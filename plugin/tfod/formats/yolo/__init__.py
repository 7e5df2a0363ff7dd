"""YOLO: Ultralytics' ``data.yaml``, Darknet's ``obj.names``, or labels next to images."""

from tfod.formats.yolo.yolo_reader import read as read
from tfod.formats.yolo.yolo_writer import Writer as Writer
