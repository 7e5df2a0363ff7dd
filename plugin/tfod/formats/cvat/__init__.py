"""CVAT's shapes: as its XML has them, and as the objects of a Detection.

It may import what the formats share, ``detection`` and what is below, and no format.
"""
