"""From one format to another: paths go in, a folder or a file of the other format comes out.

It may import ``shards``, ``check``, ``convert`` and what is below it.
"""
