"""The version of tfod."""

__version__ = "0.1.0"
