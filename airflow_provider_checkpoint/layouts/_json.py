"""Reading JSON that may be damaged or hostile.

``json.loads`` lets the last of two equal keys win, accepts NaN, makes infinity of ``1e999`` and half a character, which
no file can hold, of a lone surrogate, and answers deep nesting with RecursionError. In a manifest each of these means
that somebody would restore something other than what was written.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from airflow_provider_checkpoint.exceptions import CorruptManifestError

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore

#: No manifest is read beyond this size; a larger one is refused before it fills the memory.
MAX_MANIFEST_BYTES = 256 * 1024 * 1024

#: An escape that may be half of a character; its other half may follow.
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")

Model = TypeVar("Model", bound=BaseModel)


def read_object(blobs: BlobStore, key: str, *, limit: int = MAX_MANIFEST_BYTES) -> dict[str, Any]:
    """Read and parse a JSON object; raises BlobNotFoundError or CorruptManifestError."""
    data = blobs.read(key, length=limit + 1)
    if len(data) > limit:
        raise CorruptManifestError(f"larger than {limit} bytes, which no manifest is", subject=key)
    return parse_object(data, subject=key)


def parse_object(data: bytes, *, subject: str) -> dict[str, Any]:
    """Parse bytes that must be exactly one JSON object, each key once, in UTF-8."""
    try:
        text = data.decode()
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
        if _SURROGATE_ESCAPE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise CorruptManifestError(f"not UTF-8 text (byte {error.start})", subject=subject) from None
    except UnicodeEncodeError:
        raise CorruptManifestError("not Unicode text: holds half a character", subject=subject) from None
    except RecursionError:
        raise CorruptManifestError("nested too deeply", subject=subject) from None
    except ValueError as error:
        raise CorruptManifestError(f"not valid JSON: {error}", subject=subject) from None
    if not isinstance(value, dict):
        raise CorruptManifestError(f"a JSON {type(value).__name__} where an object belongs", subject=subject)
    return value


def parse_model(model: type[Model], values: dict[str, Any], *, subject: str) -> Model:
    """Turn parsed JSON into a strict model; the error names the first wrong field and how many more there are."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        first = problems[0]
        where = _brief(".".join(str(part) for part in first["loc"])) or "manifest"
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise CorruptManifestError(f"field {where}: {first['msg']}{more}", subject=subject) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {_brief(repr(key))} appears twice")
            seen.add(key)
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"number {_brief(text)} is out of range")
    return value


def _brief(text: str) -> str:
    """A name from the file, cut so that no message grows with the file."""
    return text if len(text) <= 200 else f"{text[:200]}..."
