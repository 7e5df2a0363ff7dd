"""The other engine: what ``tf.io.parse_example`` itself says of each record."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from tfod.detection.features.schema import FeatureDescription
from tfod.errors import TfodError, how_to_install
from tfod.tfrecord.reader import Record, RecordBatch

_BATCH = 64
# What the op says of itself before and behind its message.
_NOISE = re.compile(r"\{\{.*?\}\}|\[Op:.*?\]|name:\s*$|Key: (?=<unknown>)")


class TensorFlowParser:
    """Parses records under a feature description, many at a time.

    Raises:
        TfodError: TensorFlow is not installed.
    """

    def __init__(self, features: FeatureDescription) -> None:
        # Its own log would tell every refusal twice more.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        try:
            import tensorflow as tf

            from tfod.tensorflow import feature_description
        except ImportError:
            raise TfodError(
                f"--engine tensorflow needs TensorFlow; {how_to_install('tensorflow')}"
            ) from None
        self._tf: Any = tf
        self._description = feature_description(features)

    def refusals(self, records: RecordBatch) -> Iterator[tuple[Record, str]]:
        """The records that TensorFlow refuses, with its reasons; empty ones are not asked about."""
        asked = [record for record in records.records() if record.length]
        for start in range(0, len(asked), _BATCH):
            some = asked[start : start + _BATCH]
            if self._refusal([bytes(one.payload) for one in some]) is not None:
                for one in some:
                    reason = self._refusal([bytes(one.payload)])
                    if reason is not None:
                        yield one, reason

    def _refusal(self, payloads: list[bytes]) -> str | None:
        if not self._description:
            return None
        try:
            self._tf.io.parse_example(payloads, self._description)
        except (self._tf.errors.OpError, ValueError) as error:
            message = str(getattr(error, "message", error))
            if isinstance(error, UnicodeDecodeError):
                # TensorFlow quotes the record, and then trips over its own message.
                message = error.object.decode("utf-8", "replace")
            message = message.partition(", value: '")[0]
            return " ".join(_NOISE.sub("", message).split())
        return None
