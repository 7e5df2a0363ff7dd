"""What a pipeline.config of the TF Object Detection API says of its data, against the data.

Protobuf's own text format reads it, with a descriptor of the few fields that are looked at; their
names are those of tensorflow/models, ``research/object_detection/protos``. Others are skipped.
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
"""One message stands for all of the file's."""
_LARGEST_FILE = 64 << 10
_LONGEST_RUN = b"\\" * 200  # protobuf takes quadratic time for backslashes in a row
_ESCAPES = {
    "\t": r"`\t` is a tab",
    "\n": r"`\n` is a line break",
    "\r": r"`\r` is a carriage return",
}
_UNSET = ("", "TODO")
"""What the OD API's templates have in place of a path, besides ``PATH_TO_BE_CONFIGURED``."""


@dataclass(frozen=True)
class Setting:
    """One value: the names of the fields that lead to it, and what is set, or the default."""

    path: str
    value: str | int | bool

    def __str__(self) -> str:
        """```train_input_reader.num_keypoints: 3```."""
        is_name = self.value in ("DEFAULT", "NUMERICAL_MASKS", "PNG_MASKS")
        shown = self.value if is_name else json.dumps(self.value, ensure_ascii=False)
        return f"`{self.path}: {shown}`"

    @property
    def is_broken(self) -> bool:
        """Whether a backslash has made it a text with a control character, as no path has."""
        return any(one < " " for one in str(self.value))

    def set_to(self, value: str | int | bool) -> str:
        """What to do for another value: ``Set `model.ssd.num_classes: 3`.``."""
        return f"Set {Setting(self.path, value)}."


@dataclass(frozen=True, eq=False)
class Reader:
    """What is read for training (``train_input_reader``), or for an evaluation."""

    name: str
    message: Any
    is_for_evaluation: bool = False

    def get(self, field: str) -> Setting:
        """What a field is set to, or its default."""
        value, known = getattr(self.message, field), self.message.DESCRIPTOR.fields_by_name[field]
        if known.enum_type is not None:
            value = known.enum_type.values_by_number[value].name
        return Setting(f"{self.name}.{field}", value)

    @property
    def paths(self) -> list[Setting]:
        """Paths and patterns of the shards."""
        path = f"{self.name}.tf_record_input_reader.input_path"
        return [Setting(path, one) for one in self.message.tf_record_input_reader.input_path]

    @functools.cached_property
    def files(self) -> Mapping[str, str]:
        """The shards that are there, by what links in their paths lead to."""
        return {_real(file): file for one in self.paths for file in _files_of(one)[0]}


class TrainingConfig:
    """A pipeline.config, by its path.

    Raises:
        TfodError: it cannot be read, or is something else; one line says where and why.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        whole = _parse(file)
        self.readers = [Reader("train_input_reader", one) for one in whole.train_input_reader]
        self.readers += [Reader("eval_input_reader", one, True) for one in whole.eval_input_reader]
        self.num_classes = [
            Setting(f"model.{kind}.num_classes", getattr(whole.model, kind).num_classes)
            for kind in ("ssd", "faster_rcnn", "center_net")
            if whole.model.HasField(kind)
        ]
        named = [one for one in self.readers if one.message.HasField("label_map_path")]
        self.label_maps = [one.get("label_map_path") for one in named]

    @property
    def label_map(self) -> str | None:
        """The label map that class texts are looked up in, if it is there."""
        return next((file for one in self.label_maps for file in _files_of(one)[0]), None)

    def sources(self) -> list[str]:
        """The shards that it names, each once.

        Raises:
            TfodError: it names none.
        """
        if not any(one.paths for one in self.readers):
            raise TfodError(f"{self.file} names no shards; name them on the command line, too")
        return list(dict.fromkeys(file for one in self.readers for file in one.files.values()))

    def lost_paths(self) -> Iterator[tuple[Setting, str]]:
        """Its paths that lead to no file on this machine, and why."""
        for path in (*(path for one in self.readers for path in one.paths), *self.label_maps):
            files, reason = _files_of(path)
            if not files:
                yield path, reason

    def reads(self, reader: Reader, shard: str, subset: str) -> bool:
        """Whether a reader reads a shard: by its path, else by the name of its subset."""
        path = _real(shard)
        if any(path in one.files for one in self.readers):
            return path in reader.files
        is_evaluated = any(word in subset.lower() for word in ("val", "eval", "test"))
        return is_evaluated is reader.is_for_evaluation

    def names(self, shard: str) -> bool:
        """Whether it names a shard."""
        return any(_real(shard) in one.files for one in self.readers)


def _parse(file: str) -> Any:
    fields = text_format.Parse(_FIELDS, descriptor_pb2.FileDescriptorProto())
    message = message_class(fields, "Section")()
    data = read_text_file(file, _LARGEST_FILE)
    if len(data) > _LARGEST_FILE or _LONGEST_RUN in data:
        raise TfodError(f"{file} is too long for a pipeline.config, or has texts that none has")
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
            reason = "a backslash in a text is no part of a path; write / in its place"
        where = f"{file}:{line}:{column}" if line else file
        raise TfodError(f"{where}: not protobuf's text format: {reason}") from None
    if not message.ListFields():
        raise TfodError(f"{file} is not a pipeline.config, which has model and train_input_reader")
    return message


def _files_of(path: Setting) -> tuple[Sequence[str], str]:
    """What a path or a pattern means on this machine, and why it is nothing, if it is."""
    pattern = str(path.value)
    if pattern.strip().upper() in _UNSET or "PATH_TO_BE" in pattern:
        return (), "is not filled in"
    if is_url(pattern):
        try:
            return list(list_remote(pattern)), "no file is there"
        except RemoteError as error:
            return (), str(error)
    if path.is_broken:
        other = "a backslash has made a control character"
        said = next((said for one, said in _ESCAPES.items() if one in pattern), other)
        return (), f"{said}; write / in place of the backslash"
    if os.sep == "/" and "\\" in pattern:
        return (), "no file is there; write / in place of the backslash"
    found = sorted(one for one in glob.glob(pattern) if os.path.isfile(one))
    return found, f"no file is at {os.path.abspath(pattern)}"


def _real(path: str) -> str:
    return path if is_url(path) else os.path.realpath(path)
