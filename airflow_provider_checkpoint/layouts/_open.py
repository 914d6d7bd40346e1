"""From an address to a layout."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_checkpoint.blobs import open_blobs
from airflow_provider_checkpoint.exceptions import ConfigurationError, InvalidKeyError
from airflow_provider_checkpoint.layouts._recognise import SIGNS, Sight, is_empty, look

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_checkpoint.blobs import BlobStore, StoreOptions
    from airflow_provider_checkpoint.layouts._protocol import Layout

AUTO = "auto"

#: Imported when first opened, so that importing this package stays cheap.
_CLASSES = {
    "sidecar": ("airflow_provider_checkpoint.layouts.sidecar", "SidecarLayout"),
    "partitioned": ("airflow_provider_checkpoint.layouts.partitioned", "PartitionedLayout"),
    "stream": ("airflow_provider_checkpoint.layouts.stream", "StreamLayout"),
    "structured_streaming": (
        "airflow_provider_checkpoint.layouts.structured_streaming",
        "StructuredStreamingLayout",
    ),
}

#: Whoever comes by an address is not the job, and has no count of vnodes to compare with unless it is given.
_SETTINGS: dict[str, dict[str, Any]] = {"sidecar": {"vnode_count": None}}

#: Names in a message.
_SHOWN = 8
#: Folders that are looked into for the sake of a message.
_HINTED = 16
_LOOKS_AT_ONCE = 16


def open_store(
    uri: str,
    *,
    layout: str = AUTO,
    pipeline: str | None = None,
    options: StoreOptions | Mapping[str, Any] | None = None,
    **layout_options: Any,
) -> Layout:
    """Open the checkpoints at an address.

    :param uri: where they are, see :func:`~airflow_provider_checkpoint.blobs.open_blobs`.
    :param layout: ``sidecar``, ``partitioned``, ``stream``, ``structured_streaming``, or ``auto``: recognise it from
        what is there.
    :param pipeline: a folder below the address; for ``stream`` the name of the stream.
    :param options: how to reach the store.
    :param layout_options: settings of the layout itself.

    A layout named by the user is not checked against what is there, so a new store can be opened. ``auto`` raises
    ConfigurationError if the folder is empty, unknown, or holds two layouts at once.
    """
    blobs = open_blobs(uri, options)
    if layout == AUTO:
        layout, blobs = _recognised(blobs, pipeline)
    elif layout in SIGNS:
        blobs = _folder(blobs, layout, pipeline)
    else:
        raise ConfigurationError(f"unknown layout {layout!r}", hint=f"Known are auto, {', '.join(SIGNS)}.")
    if layout == "structured_streaming":
        layout_options = {"records": _records(uri, pipeline, options), **layout_options}
    return _make(layout, blobs, layout_options)


def require_its_own(layout: Layout) -> None:
    """Raise ConfigurationError if a store that was opened under the name of a layout holds checkpoints of another.

    It would look empty. One that holds nothing at all is fine, and costs one small listing.
    """
    blobs = layout.blobs
    if next(iter(blobs.list()), None) is None or next(iter(layout.newest_first()), None) is not None:
        return
    sight = look(blobs)
    if layout.name in sight.layouts:
        return
    if sight.layouts:
        evidence = " and ".join(f"{name} ({sign})" for name, sign in sorted(sight.layouts.items()))
        raise ConfigurationError(
            f"no checkpoints of the layout {layout.name} here; this looks like {evidence}",
            subject=blobs.uri,
            hint=f"Pass --layout {' or --layout '.join(sorted(sight.layouts))}.",
        )
    _refuse_above_pipelines(blobs, sight)


def pipelines(uri: str, *, layout: str = AUTO, options: StoreOptions | Mapping[str, Any] | None = None) -> list[str]:
    """The pipelines below an address, sorted: the folders in which checkpoints are recognised.

    Each name can be given to :func:`open_store`. A folder of a ``stream`` is answered by the stream's name. If the
    address is itself a store, its folders are its own and there are none.

    :param layout: only pipelines of this layout.
    """
    if layout not in (AUTO, *SIGNS):
        raise ConfigurationError(f"unknown layout {layout!r}", hint=f"Known are auto, {', '.join(SIGNS)}.")
    blobs = open_blobs(uri, options)
    sight = look(blobs)
    return [] if sight.layouts else _pipelines(blobs, sight.folders, layout)


# -- layouts -----------------------------------------------------------------------------------------------------


def _make(name: str, blobs: BlobStore, settings: dict[str, Any]) -> Layout:
    module, attribute = _CLASSES[name]
    kind = getattr(import_module(module), attribute)
    signature = inspect.signature(kind)
    try:
        signature.bind(blobs, **settings)
    except TypeError as error:
        known = ", ".join(list(signature.parameters)[1:]) or "none"
        raise ConfigurationError(
            f"the layout {name} does not take these options ({error})", hint=f"It takes: {known}."
        ) from None
    made: Layout = kind(blobs, **_SETTINGS.get(name, {}) | settings)
    return made


# -- folders -----------------------------------------------------------------------------------------------------


def _folder(blobs: BlobStore, layout: str, pipeline: str | None) -> BlobStore:
    if pipeline is None:
        return blobs
    if layout == "stream":
        from airflow_provider_checkpoint.layouts.stream import stream_folder

        return blobs.at(stream_folder(pipeline))
    try:
        return blobs.at(pipeline)
    except InvalidKeyError as error:
        raise ConfigurationError(
            f"not the name of a pipeline: {error.message}",
            subject=repr(pipeline),
            hint="A pipeline is a folder below the address of the store.",
        ) from None


def _records(uri: str, pipeline: str | None, options: StoreOptions | Mapping[str, Any] | None) -> BlobStore:
    """Where the records of a directory lie that belongs to Spark: in a folder beside it."""
    from airflow_provider_checkpoint.layouts.structured_streaming import RECORDS_SUFFIX, records_address

    if pipeline is None:
        return open_blobs(records_address(uri), options)
    return open_blobs(uri, options).at(pipeline.removesuffix("/") + RECORDS_SUFFIX)


def _recognised(blobs: BlobStore, pipeline: str | None) -> tuple[str, BlobStore]:
    """The layout that is there, and its folder; for a pipeline also looks where a stream of that name would be."""
    sights = [(place, look(place)) for place in _places(blobs, pipeline)]
    known = [(place, sight) for place, sight in sights if sight.layouts]
    found = known or [(place, sight) for place, sight in sights if not is_empty(sight)]
    if not found:
        raise ConfigurationError(
            "nothing is there, so that no layout can be recognised",
            subject=sights[0][0].uri,
            hint=f"Check the address, or name the layout to start a new store: {', '.join(_CLASSES)}.",
        )
    if len(known) > 1 and all(set(sight.layouts) == {"stream"} for _, sight in known):
        # The name was read as that of a folder and as that of a stream. A stream is called by its own name.
        found = known[-1:]
    elif len(known) > 1:
        raise ConfigurationError(
            f"two stores for the pipeline {pipeline!r}: {' and '.join(place.uri for place, _ in known)}",
            hint="Name the layout that is meant.",
        )
    place, sight = found[0]
    if len(sight.layouts) != 1:
        _refuse(place, sight)
    return next(iter(sight.layouts)), place


def _places(blobs: BlobStore, pipeline: str | None) -> list[BlobStore]:
    if pipeline is None:
        return [blobs]
    places: dict[str, BlobStore] = {}
    for layout in (AUTO, "stream"):
        try:
            place = _folder(blobs, layout, pipeline)
        except ConfigurationError:
            # Not every name of a folder is one of a stream, nor the other way round.
            if layout == "stream" and not places:
                raise
        else:
            places[place.uri] = place
    return list(places.values())


def _refuse(blobs: BlobStore, sight: Sight) -> NoReturn:
    if sight.layouts:
        evidence = ", ".join(f"{name} ({sign})" for name, sign in sorted(sight.layouts.items()))
        raise ConfigurationError(
            f"two layouts in one folder: {evidence}",
            subject=blobs.uri,
            hint="Name the layout that is meant; better, give each a folder of its own.",
        )
    _refuse_above_pipelines(blobs, sight)
    raise ConfigurationError(
        f"unknown content; found {_some(sight.names)}",
        subject=blobs.uri,
        hint=f"Looked for {'; '.join(f'{name}: {signs}' for name, signs in SIGNS.items())}. Is the address right?"
        " A directory of Spark without its offsets is looked at with --layout structured_streaming.",
    )


def _refuse_above_pipelines(blobs: BlobStore, sight: Sight) -> None:
    below = _pipelines(blobs, sight.folders[:_HINTED], AUTO)
    if below:
        raise ConfigurationError(
            "no checkpoints here, but pipelines below",
            subject=blobs.uri,
            hint=f"Say which (--pipeline): {_some(below)}.",
        )


def _pipelines(blobs: BlobStore, folders: tuple[str, ...], layout: str) -> list[str]:
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        names = pool.map(lambda folder: _pipeline_in(blobs, folder, layout), folders)
        return sorted(name for name in names if name is not None)


def _pipeline_in(blobs: BlobStore, folder: str, layout: str) -> str | None:
    try:
        found = look(blobs.at(folder)).layouts
    except InvalidKeyError:
        # Somebody else's folder, with a name that none of ours can have.
        return None
    if not found or layout not in (AUTO, *found):
        return None
    if set(found) == {"stream"}:
        from airflow_provider_checkpoint.layouts.stream import stream_name

        return stream_name(folder) or folder
    return folder


def _some(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
