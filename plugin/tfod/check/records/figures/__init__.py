"""Figures of what the records hold: batches in, bounded counts out, which can be added up.

It may import what :mod:`tfod.check.records` may.
"""
