"""The packages of the receivers are only in .venv-receivers."""

from __future__ import annotations

import os
from importlib.util import find_spec

# The OD API's protobuf code is of 2022; only the implementation in Python still loads it.
os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Their models are of Keras 2.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
if find_spec("official") is None:
    collect_ignore_glob = ["test_*.py"]
