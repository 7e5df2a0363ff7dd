"""The classes of a dataset: label maps and ``labels.txt`` in, ids and names in their order out.

It may import what is below its room.
"""
