"""Onto Apache Beam: checks shards that one machine should not walk alone.

It may import ``check`` and what is below it, which knows a :class:`Runner` only by its method.
Needs the extra ``beam``; nothing else imports Apache Beam.

A pipeline is made by a function that takes a ``beam.Pipeline`` and returns the PCollection whose
elements are wanted: ``run_pipeline(functools.partial(my_steps, shards), runner)``. What is handed
over is pickled: functions and classes of modules, no lambdas (those may be inside, as steps). The
elements come back as a list in no order; they should be few and small. Steps are pure: a bundle may
be done twice, and where a worker dies everything is. A :class:`tfod.errors.TfodError` that a step
raises comes out of ``run_pipeline``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfod.errors import TfodError, how_to_install

# Looked for and not imported: the pipeline is made and run in a process of its own.
if importlib.util.find_spec("apache_beam") is None:
    raise TfodError(f"--runner needs Apache Beam; {how_to_install('beam')}")

from tfod.beam.run import PipelineRunner, run_pipeline

if TYPE_CHECKING:
    from tfod.check.engine.inputs import Input
    from tfod.check.records.instructions import Instructions
    from tfod.check.records.result import Result

__all__ = ["Runner", "run_pipeline"]


class Runner(PipelineRunner):
    """Where a pipeline runs, and what a check asks of it."""

    def examine(
        self, inputs: Sequence[Input], instructions: Instructions, keeps_rows: bool
    ) -> Result:
        """Examine all inputs of a check; their rows are in the result where they are wanted."""
        from tfod.beam.check import examine_on_beam

        return examine_on_beam(inputs, instructions, keeps_rows, self)
