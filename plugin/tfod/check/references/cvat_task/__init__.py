"""The CVAT task that shards are meant for: its XML or its frames go in, what does not fit
comes out.

It may import ``convert`` and what is below it, and the findings and rules of the check.
"""
