"""Pipelines for PySparkRunner, which knows groups by key and no reshuffling."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PTransformOverride


def deal_by_groups(pipeline: beam.Pipeline) -> None:
    """Put groups with keys by chance in the places where elements are to be dealt anew."""
    pipeline.replace_all([_ReshuffleOverride()])


class _ReshuffleOverride(PTransformOverride):
    def matches(self, applied_ptransform: AppliedPTransform) -> bool:
        return isinstance(applied_ptransform.transform, beam.Reshuffle)

    def get_replacement_transform_for_applied_ptransform(
        self, applied_ptransform: AppliedPTransform
    ) -> beam.PTransform:
        return _Dealing()


class _Dealing(beam.PTransform):
    def expand(self, input_or_inputs: beam.PCollection[Any]) -> beam.PCollection[Any]:
        return (
            input_or_inputs
            | "by chance" >> beam.Map(_with_chance)
            | beam.GroupByKey()
            | "elements" >> beam.FlatMap(_elements)
        )


def _with_chance(element: Any) -> tuple[int, Any]:
    return random.getrandbits(32), element


def _elements(group: tuple[int, Iterable[Any]]) -> Iterable[Any]:
    return group[1]
