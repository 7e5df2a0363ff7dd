"""Onto Apache Beam: pipelines over more shards than one machine should walk alone.

Needs the extra ``beam``; nothing else in tfod imports Apache Beam. A module that makes a
pipeline has a function (or a frozen dataclass with ``__call__``) that takes a
``beam.Pipeline`` and returns the PCollection whose elements are wanted, and calls

    run_pipeline(functools.partial(my_steps, shards, options), Runner("DirectRunner", arguments))

What is handed over is pickled: functions and classes of modules, no lambdas (those may be inside,
as steps). The elements come back as a list in no order; they should be few and small. Steps are
pure, or harmless when they are done twice: a bundle may be, and where a worker dies everything is.
A :class:`tfod.errors.TfodError` that a step raises comes out of ``run_pipeline``.
"""

from __future__ import annotations

import importlib.util

from tfod.errors import TfodError, how_to_install

# Looked for and not imported: the pipeline is made and run in a process of its own.
if importlib.util.find_spec("apache_beam") is None:
    raise TfodError(f"--runner needs Apache Beam; {how_to_install('beam')}")

from tfod.beam.run import Runner, run_pipeline

__all__ = ["Runner", "run_pipeline"]
