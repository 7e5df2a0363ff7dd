"""Shards with different label maps put together: shards and decisions in, one set out."""
