"""Tests of the check; ``files`` has samples and expected reports."""

from pathlib import Path

FILES = Path(__file__).with_name("files")
