"""The data settings of a pipeline.config of the TF Object Detection API.

Protobuf's text format parses the file, with a descriptor of the few fields that are needed, from
tensorflow/models, ``research/object_detection/protos``. Other fields are skipped.
"""

from __future__ import annotations

import functools
import glob
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, text_format

from tfod.detection.labels.label_map import read_text_file
from tfod.detection.labels.message import message_class
from tfod.errors import TfodError
from tfod.tfrecord.storage.remote import RemoteError, list_remote
from tfod.tfrecord.storage.urls import is_url

_FIELDS = """
name: "tfod/pipeline.proto" syntax: "proto2"
message_type {
  name: "Section" extension_range { start: 1000 end: 536870912 }
  field { name: "model" number: 1 type_name: "Section" }
  field { name: "ssd" number: 2 type_name: "Section" }
  field { name: "faster_rcnn" number: 3 type_name: "Section" }
  field { name: "center_net" number: 4 type_name: "Section" }
  field { name: "num_classes" number: 5 type: TYPE_INT32 }
  field { name: "train_input_reader" number: 6 type_name: "Section" label: LABEL_REPEATED }
  field { name: "eval_input_reader" number: 7 type_name: "Section" label: LABEL_REPEATED }
  field { name: "label_map_path" number: 8 type: TYPE_STRING }
  field { name: "tf_record_input_reader" number: 9 type_name: "Section" }
  field { name: "input_path" number: 10 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "load_instance_masks" number: 11 type: TYPE_BOOL }
  field { name: "mask_type" number: 12 type_name: "MaskType" }
  field { name: "num_keypoints" number: 13 type: TYPE_INT32 }
  field { name: "use_keypoint_label_map" number: 14 type: TYPE_BOOL }
}
enum_type {
  name: "MaskType" value { name: "DEFAULT" number: 0 }
  value { name: "NUMERICAL_MASKS" number: 1 } value { name: "PNG_MASKS" number: 2 }
}
"""
"""All messages of the file are parsed as the same type."""
_MAX_FILE_BYTES = 64 << 10
_LIST_ERROR = "Invalid field value: ["  # of protobuf before 4.21, for fields that are not read
_TOO_MANY_BACKSLASHES = b"\\" * 200  # protobuf takes quadratic time for backslashes in a row
_ESCAPES = {
    "\t": r"`\t` is a tab",
    "\n": r"`\n` is a line break",
    "\r": r"`\r` is a carriage return",
}
_UNSET = ("", "TODO")
"""Placeholders for paths in the OD API's templates, next to ``PATH_TO_BE_CONFIGURED``."""


@dataclass(frozen=True)
class Setting:
    """A value, set or default, and the names of the fields that lead to it."""

    path: str
    value: str | int | bool

    def __str__(self) -> str:
        """Return, for example, ```train_input_reader.num_keypoints: 3```."""
        is_name = self.value in ("DEFAULT", "NUMERICAL_MASKS", "PNG_MASKS")
        shown = self.value if is_name else json.dumps(self.value, ensure_ascii=False)
        return f"`{self.path}: {shown}`"

    @property
    def is_broken(self) -> bool:
        """Whether it has a control character, because a path was written with backslashes."""
        return any(character < " " for character in str(self.value))

    def format_fix(self, value: str | int | bool) -> str:
        """Return a fix with another value: ``In {file}, set `model.ssd.num_classes: 3`.``."""
        return f"In {{file}}, set {Setting(self.path, value)}."


@dataclass(frozen=True, eq=False)
class Reader:
    """An input reader: ``train_input_reader`` or ``eval_input_reader``."""

    name: str
    message: Any
    is_for_evaluation: bool = False

    def get(self, field: str) -> Setting:
        """Return the value of a field, or its default."""
        value = getattr(self.message, field)
        descriptor = self.message.DESCRIPTOR.fields_by_name[field]
        if descriptor.enum_type is not None:
            value = descriptor.enum_type.values_by_number[value].name
        return Setting(f"{self.name}.{field}", value)

    @property
    def paths(self) -> list[Setting]:
        """The paths and patterns of the shards."""
        path = f"{self.name}.tf_record_input_reader.input_path"
        return [Setting(path, value) for value in self.message.tf_record_input_reader.input_path]

    @functools.cached_property
    def files(self) -> Mapping[str, str]:
        """The existing shards, by path with symbolic links resolved."""
        return {_resolve(file): file for path in self.paths for file in _find_files(path)[0]}


class TrainingConfig:
    """A pipeline.config, loaded from its path."""

    def __init__(self, file: str) -> None:
        self.file = file
        config = _parse(file)
        self.readers = [
            *(Reader("train_input_reader", message) for message in config.train_input_reader),
            *(Reader("eval_input_reader", message, True) for message in config.eval_input_reader),
        ]
        self.num_classes = [
            Setting(f"model.{kind}.num_classes", getattr(config.model, kind).num_classes)
            for kind in ("ssd", "faster_rcnn", "center_net")
            if config.model.HasField(kind)
        ]
        self.label_maps = [
            reader.get("label_map_path")
            for reader in self.readers
            if reader.message.HasField("label_map_path")
        ]

    @property
    def label_map(self) -> str | None:
        """The first label map that exists, or None."""
        return next((file for path in self.label_maps for file in _find_files(path)[0]), None)

    def sources(self) -> list[str]:
        """Return the shards in the configuration, without duplicates."""
        if not any(reader.paths for reader in self.readers):
            raise TfodError(f"{self.file} names no shards; pass them on the command line")
        files = (file for reader in self.readers for file in reader.files.values())
        return list(dict.fromkeys(files))

    def find_missing_paths(self) -> Iterator[tuple[Setting, str]]:
        """Yield the paths that match no file on this computer, and the reason."""
        shards = (path for reader in self.readers for path in reader.paths)
        for path in (*shards, *self.label_maps):
            files, reason = _find_files(path)
            if not files:
                yield path, reason

    def reads(self, reader: Reader, shard: str, subset: str) -> bool:
        """Return whether a reader reads a shard: by path, or else by the name of its subset."""
        path = _resolve(shard)
        if any(path in other.files for other in self.readers):
            return path in reader.files
        is_for_evaluation = any(word in subset.lower() for word in ("val", "eval", "test"))
        return is_for_evaluation is reader.is_for_evaluation

    def names(self, shard: str) -> bool:
        """Return whether the configuration names a shard."""
        return any(_resolve(shard) in reader.files for reader in self.readers)


def _parse(file: str) -> Any:
    fields = text_format.Parse(_FIELDS, descriptor_pb2.FileDescriptorProto())
    message = message_class(fields, "Section")()
    data = read_text_file(file, _MAX_FILE_BYTES)
    if len(data) > _MAX_FILE_BYTES or _TOO_MANY_BACKSLASHES in data:
        raise TfodError(f"{file} is too long for a pipeline.config, or has too many backslashes")
    try:
        text = data.decode("utf-8")
        text_format.Parse(text, message, allow_unknown_extension=True, allow_unknown_field=True)
    except (UnicodeDecodeError, RecursionError) as error:
        raise TfodError(f"{file} is not a pipeline.config: {error}") from None
    except text_format.ParseError as error:
        line, column = error.GetLine(), error.GetColumn()
        reason = str(error).rpartition("': ")[2].removeprefix(f"{line}:{column} : ")[:100]
        if text.startswith("\ufeff"):
            reason = "a byte order mark; save the file as UTF-8 without one"
        elif "unicodeescape" in reason:
            reason = "a path has a backslash; write / instead"
        elif reason == _LIST_ERROR:
            reason = "lists in brackets need protobuf 4.21; write the field once for each value"
        location = f"{file}:{line}:{column}" if line else file
        raise TfodError(f"{location}: not protobuf's text format: {reason}") from None
    if not message.ListFields():
        raise TfodError(f"{file} is not a pipeline.config: it has no model or train_input_reader")
    return message


def _find_files(path: Setting) -> tuple[Sequence[str], str]:
    """Return the files that match a path or a pattern, and the reason if no file does."""
    pattern = str(path.value)
    if pattern.strip().upper() in _UNSET or "PATH_TO_BE" in pattern:
        return (), "is not filled in"
    if is_url(pattern):
        try:
            return list(list_remote(pattern)), "no file exists there"
        except RemoteError as error:
            return (), str(error)
    if path.is_broken:
        escapes = [text for character, text in _ESCAPES.items() if character in pattern]
        reason = escapes[0] if escapes else "a backslash and a letter are a control character"
        return (), f"{reason}; write / instead of the backslash"
    if os.sep == "/" and "\\" in pattern:
        return (), "no file exists there; write / instead of the backslash"
    files = sorted(file for file in glob.glob(pattern) if os.path.isfile(file))
    return files, f"no file exists at {os.path.abspath(pattern)}"


def _resolve(path: str) -> str:
    return path if is_url(path) else os.path.realpath(path)
