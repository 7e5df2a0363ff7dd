"""The daily chores of shards: other numbers of them, one label map, parts, an index."""
