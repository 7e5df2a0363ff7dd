"""Parameters of requests: declared once, read by the views, told by the API's description."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import jsonschema

from tfod_validator.problems import ProblemError

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Parameter:
    """A parameter.

    Attributes:
        name: as it is written.
        schema: JSON schema of its value; its type is string, number or integer.
        description: what it means.
        place: where it stands.
    """

    name: str
    schema: Mapping[str, Any]
    description: str
    place: Literal["query", "path"] = "query"

    def read(self, values: Mapping[str, str]) -> Any:
        """Its value, or the default of its schema, or None.

        Raises:
            ProblemError: what is written is no such value.
        """
        text = values.get(self.name)
        if text is None:
            return self.schema.get("default")
        try:
            value = _CONVERTERS[self.schema["type"]](text)
            jsonschema.validate(value, self.schema)
        except (ValueError, jsonschema.ValidationError):
            detail = f"{self.name}={text[:80]} cannot be: {self.expected()}."
            raise ProblemError(400, detail, parameter=self.name) from None
        return value

    def expected(self) -> str:
        """What it may be, in words."""
        schema = self.schema
        if "enum" in schema:
            return f"expected {', '.join(map(str, schema['enum']))}"
        if "examples" in schema:
            return f"expected {' or '.join(schema['examples'])}"
        if "minimum" in schema:
            return f"expected a number from {schema['minimum']} to {schema.get('maximum', 'any')}"
        return f"expected a {schema['type']} of {schema.get('maxLength', 'any')} letters at most"

    def document(self) -> dict[str, Any]:
        """The parameter in OpenAPI's words."""
        return {
            "name": self.name,
            "in": self.place,
            "required": self.place == "path",
            "description": self.description,
            "schema": dict(self.schema),
        }


@dataclass(frozen=True)
class Operation:
    """What the API's description says of a view.

    Attributes:
        summary: a line.
        tag: the group it belongs to.
        parameters: of the address.
        responses: by status: what it means, and the content by type (a schema, or a reference).
        body: content of the request by type.
        description: more than a line.
        open: whether it needs no token.
    """

    summary: str
    tag: str
    responses: Mapping[int, tuple[str, Mapping[str, Any]]]
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, Any] | None = None
    description: str = ""
    open: bool = False


def operation(described: Operation) -> Callable[[_Function], _Function]:
    """Attach the description to a view."""

    def attach(view: _Function) -> _Function:
        view.tfod_operation = described  # type: ignore[attr-defined]
        return view

    return attach


def operation_of(view: Callable[..., Any]) -> Operation | None:
    """The description of a view; None where it has none."""
    return getattr(view, "tfod_operation", None)


def require_known(values: Mapping[str, str], known: tuple[Parameter, ...]) -> None:
    """Refuse parameters that nobody reads: a slip of the pen would change what is meant.

    Raises:
        ProblemError: there is one.
    """
    names = [one.name for one in known]
    for name in values:
        if name not in names:
            detail = f"{name[:80]} is no parameter here; there are {', '.join(names)}."
            raise ProblemError(400, detail, parameter=name[:80])


def _number(text: str) -> float:
    number = float(text)
    if not text.isascii() or "_" in text or not math.isfinite(number):
        raise ValueError(text)
    return number


def _integer(text: str) -> int:
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return int(text)


_CONVERTERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "number": _number,
    "integer": _integer,
}
