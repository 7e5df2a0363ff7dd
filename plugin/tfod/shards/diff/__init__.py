"""What differs between two datasets: paths of any format that ``tfod convert`` reads go in; what
differs of records, images, boxes, classes and other values comes out, as text or JSON.

It may import ``shards.convert``, ``check``, ``convert``, ``detection`` and what is below it.
"""
