"""JSON files, read with errors that name the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tfod.errors import TfodError


def read_json(path: str, **options: Any) -> Any:
    """Read a JSON file; options are those of :func:`json.loads`.

    Raises:
        TfodError: it cannot be read or is no JSON, with the line.
    """
    try:
        return json.loads(Path(path).read_bytes(), **options)
    except OSError as error:
        raise TfodError(f"{path} cannot be read: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise TfodError(
            f"{path} is not valid JSON ({error.msg}, line {error.lineno}, column {error.colno}); "
            "save it again"
        ) from None
    except UnicodeDecodeError as error:
        raise TfodError(
            f"{path} is not valid JSON (byte {error.start} is not UTF-8); save it as UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise TfodError(f"{path} is not JSON that can be read ({reason}); save it again") from None
