"""Our shards in the code of the receivers: ``make test-receivers``."""
