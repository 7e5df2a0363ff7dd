"""What shards are compared with: annotations, a CVAT task, a trainer's configuration.

Each is read into a frozen dataclass that rules look at.
"""
