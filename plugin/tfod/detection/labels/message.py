"""StringIntLabelMap as a protobuf message, in a separate module since protobuf loads slowly.

The descriptor is built at run time, to work with any release of protobuf.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

ParseError = text_format.ParseError
_MAX_BACKSLASHES = "\\" * 200  # protobuf needs quadratic time for consecutive backslashes


def parse(text: str, allow_unknown_field: bool = False) -> Any:
    """Parse a StringIntLabelMap in text format. Raise ParseError if the text is invalid."""
    message = _message_class()()
    if _MAX_BACKSLASHES in text:
        raise ParseError(f"more than {len(_MAX_BACKSLASHES)} consecutive backslashes")
    try:
        text_format.Parse(text, message, allow_unknown_field=allow_unknown_field)
    except RecursionError:
        raise ParseError("nested too deeply") from None
    return message


@functools.cache
def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="tfod/string_int_label_map.proto", package="tfod", syntax="proto2"
    )
    field = descriptor_pb2.FieldDescriptorProto
    frequency = file.enum_type.add(name="LVISFrequency")
    for number, name in enumerate(("UNSPECIFIED", "FREQUENT", "COMMON", "RARE")):
        frequency.value.add(name=name, number=number)
    item = file.message_type.add(name="StringIntLabelMapItem")
    keypoint = item.nested_type.add(name="KeypointMap")
    label_map = file.message_type.add(name="StringIntLabelMap")
    fields: Sequence[tuple[Any, str, int, int, int, str]] = (
        (item, "name", 1, field.TYPE_STRING, field.LABEL_OPTIONAL, ""),
        (item, "id", 2, field.TYPE_INT32, field.LABEL_OPTIONAL, ""),
        (item, "display_name", 3, field.TYPE_STRING, field.LABEL_OPTIONAL, ""),
        (item, "keypoints", 4, field.TYPE_MESSAGE, field.LABEL_REPEATED, "KeypointMap"),
        (item, "ancestor_ids", 5, field.TYPE_INT32, field.LABEL_REPEATED, ""),
        (item, "descendant_ids", 6, field.TYPE_INT32, field.LABEL_REPEATED, ""),
        (item, "frequency", 7, field.TYPE_ENUM, field.LABEL_OPTIONAL, "LVISFrequency"),
        (item, "instance_count", 8, field.TYPE_INT32, field.LABEL_OPTIONAL, ""),
        (keypoint, "id", 1, field.TYPE_INT32, field.LABEL_OPTIONAL, ""),
        (keypoint, "label", 2, field.TYPE_STRING, field.LABEL_OPTIONAL, ""),
        (label_map, "item", 1, field.TYPE_MESSAGE, field.LABEL_REPEATED, "StringIntLabelMapItem"),
    )
    scope = {"KeypointMap": ".tfod.StringIntLabelMapItem.KeypointMap"}
    for message, name, number, kind, label, type_name in fields:
        added = message.field.add(name=name, number=number, type=kind, label=label)
        if type_name:
            added.type_name = scope.get(type_name, f".tfod.{type_name}")
    return message_class(file, "tfod.StringIntLabelMap")


def message_class(file: descriptor_pb2.FileDescriptorProto, name: str) -> Any:
    """Return the class of a message in a file, using a separate descriptor pool."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)  # protobuf < 4.22
