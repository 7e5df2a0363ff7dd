"""Shards split into subsets with a share of every class: shards and weights in, sets of shards out.

It may import what :mod:`tfod.shards` may.
"""
