"""Findings: one of them, how they are collected and counted, and the report that lists them.

It may import the rules, records, profiles and receivers of the check.
"""
