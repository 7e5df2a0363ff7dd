"""Findings: one of them, how they are collected and counted, and the report that lists them.

It may import ``check``'s rules and records.
"""
