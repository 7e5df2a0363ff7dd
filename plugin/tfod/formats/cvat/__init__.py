"""CVAT's shapes, in its XML and as the objects of a Detection.

Modules here may import what the formats share, ``detection`` and packages below it, but no format.
"""
