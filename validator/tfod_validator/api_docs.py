"""The description of the HTTP API as people read it: an OpenAPI document, laid out for a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_METHODS = ("post", "get", "put", "patch", "delete")
_NOT_SAID = "Other"
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """A parameter, or a field of a body."""

    name: str
    type: str
    meaning: str
    required: bool


@dataclass(frozen=True)
class Answer:
    """A status, what it means, and the types of content it may come with."""

    status: str
    meaning: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Endpoint:
    """A method at a path; ``tables`` are parameters and bodies with their headings."""

    method: str
    path: str
    summary: str
    paragraphs: tuple[str, ...]
    tables: tuple[tuple[str, tuple[Field, ...]], ...]
    answers: tuple[Answer, ...]
    example: str

    @property
    def anchor(self) -> str:
        """Id of its place on the page."""
        return _anchor(f"{self.method} {self.path}")


@dataclass(frozen=True)
class Group:
    """Endpoints of one tag."""

    name: str
    description: str
    endpoints: tuple[Endpoint, ...]

    @property
    def takes_something(self) -> bool:
        """Whether something is sent to one of them."""
        return any(one.method == "POST" for one in self.endpoints)

    @property
    def anchor(self) -> str:
        """Id of its place on the page."""
        return _anchor(f"group {self.name}")


@dataclass(frozen=True)
class Docs:
    """The page; ``address`` is where the OpenAPI document is."""

    title: str
    version: str
    paragraphs: tuple[str, ...]
    groups: tuple[Group, ...]
    address: str


def describe(spec: Document, base: str, address: str) -> Docs:
    """Lay out an OpenAPI document.

    Args:
        spec: the document; references within it are followed.
        base: where the service is, for examples, without a slash at its end.
        address: where the document itself is.
    """
    found: dict[str, list[Endpoint]] = {one["name"]: [] for one in spec.get("tags", ())}
    for path, item in spec["paths"].items():
        for method in _METHODS:
            if method in item:
                tag = next(iter(item[method].get("tags", ())), _NOT_SAID)
                found.setdefault(tag, []).append(_endpoint(spec, base, path, method, item))
    told = {one["name"]: one.get("description", "") for one in spec.get("tags", ())}
    info = spec["info"]
    groups = [Group(name, told.get(name, ""), tuple(those)) for name, those in found.items()]
    return Docs(
        title=info["title"],
        version=info["version"],
        paragraphs=_paragraphs(info),
        # What takes something in is what people look for.
        groups=tuple(sorted(groups, key=lambda group: not group.takes_something)),
        address=address,
    )


def _endpoint(spec: Document, base: str, path: str, method: str, item: Document) -> Endpoint:
    operation = item[method]
    given = (*item.get("parameters", ()), *operation.get("parameters", ()))
    parameters = [_resolved(spec, one) for one in given]
    tables = [
        (heading, tuple(_parameter(spec, one) for one in parameters if one["in"] == place))
        for place, heading in (("path", "In the path"), ("query", "In the query"))
    ]
    tables += _bodies(spec, operation)
    return Endpoint(
        method=method.upper(),
        path=path,
        summary=operation.get("summary", ""),
        paragraphs=_paragraphs(operation),
        tables=tuple((heading, fields) for heading, fields in tables if fields),
        answers=tuple(
            _answer(spec, str(status), one) for status, one in operation["responses"].items()
        ),
        example=_example(base, path, method, operation),
    )


def _parameter(spec: Document, one: Document) -> Field:
    meaning = one.get("description", "")
    return Field(one["name"], _type(spec, one["schema"]), meaning, one.get("required", False))


def _bodies(spec: Document, operation: Document) -> Iterator[tuple[str, tuple[Field, ...]]]:
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = _resolved(spec, content.get("schema", {}))
        required = schema.get("required", ())
        fields = tuple(
            Field(
                name,
                _type(spec, one),
                _resolved(spec, one).get("description", ""),
                name in required,
            )
            for name, one in schema.get("properties", {}).items()
        )
        if not fields:
            said = schema.get("description") or "the file itself"
            fields = (Field("(body)", _type(spec, schema), said, True),)
        yield f"Body as {kind}", fields


def _answer(spec: Document, status: str, given: Document) -> Answer:
    one = _resolved(spec, given)
    return Answer(status, one.get("description", ""), tuple(one.get("content", {})))


def _type(spec: Document, schema: Document) -> str:
    """A schema in a word or two."""
    schema = _resolved(spec, schema)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(spec, one) for one in schema[several]))
    if "enum" in schema:
        return " | ".join(str(one) for one in schema["enum"] if one != "")
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"array of {_type(spec, schema.get('items', {}))}"
    if schema.get("format") == "binary" or "contentMediaType" in schema:
        return "file"
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)


def _example(base: str, path: str, method: str, operation: Document) -> str:
    """A call with curl, for a shell."""
    parts = ["curl"]
    if method not in ("get", "post"):
        parts.append(f"-X {method.upper()}")
    kinds = [kind for one in operation["responses"].values() for kind in one.get("content", {})]
    if "text/event-stream" in kinds:
        parts.append("--no-buffer")
    if any(kind.startswith("image/") for kind in kinds):
        parts.append("-o image.jpg")
    content = operation.get("requestBody", {}).get("content", {})
    if "multipart/form-data" in content:
        parts.append("-F file=@anno.zip")
    elif content:
        parts.append("--data-binary @anno.zip")
    address = base + re.sub(r"{(\w+)}", lambda match: _VALUES.get(match[1], f"${match[1]}"), path)
    return f'{" ".join(parts)} "{address}"'


_VALUES = {"code": "BOX003", "number": "0"}


def _resolved(spec: Document, one: Document) -> Document:
    """What a reference refers to."""
    while "$ref" in one:
        target: Any = spec
        for name in one["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        one = target
    return one


def _paragraphs(one: Document) -> tuple[str, ...]:
    parts = re.split(r"\n\s*\n", one.get("description", ""))
    return tuple(" ".join(part.split()) for part in parts if part.strip())


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
