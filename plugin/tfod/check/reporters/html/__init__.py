"""The HTML report: a report and its drawn images in, one page out.

It may import what :mod:`tfod.check.reporters` may.
"""
