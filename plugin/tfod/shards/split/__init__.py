"""Shards split into subsets, each with its share of every class."""
