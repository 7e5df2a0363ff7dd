"""Shards with different label maps put together: shards and decisions in, one set out.

It may import what :mod:`tfod.shards` may.
"""
