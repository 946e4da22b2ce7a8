"""Views that a caller lists, creates, replaces, renames and drops. MetaService keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from metaservice.client import LakeTXError, MetaServiceError
from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.iceberg.commits.requirements import UnmetError
from worker.iceberg.commits.views import new_view, replaced_view
from worker.iceberg.locations import location_of
from worker.iceberg.metadata.views import view_metadata, view_schema
from worker.iceberg.rest.catalog import NO_NAMESPACE_NAME, Catalog, first_of, is_in, last_part
from worker.iceberg.rest.problems import NO_VIEW, RestError, cannot_rename, problem_of
from worker.iceberg.rest.warehouses import off_branch
from worker.iceberg.rest.writes import Writes

FOLDER: Final = "_views"  # in the names of places; nothing lies there
Answer = TypeVar("Answer")


class Views:
    """The views of one caller."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._client = catalog.lake.client

    def names(self, namespace: str) -> list[str]:
        """Return the names of the views that can be shown."""
        self._catalog.namespace(namespace)
        return sorted({last_part(off_branch(view.name)) for view in self._all(namespace) if _can_be_shown(view)})

    def find(self, namespace: str, name: str) -> catalog_pb2.View:
        named = self._catalog.warehouse.named
        return first_of(lambda whole: self._client.get_view(named(whole)), namespace, name, NO_VIEW)

    def load(self, namespace: str, name: str) -> dict[str, Any]:
        return self._shown(self.find(namespace, name))

    def create(self, namespace: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        whole = Writes(self._catalog).free_name(namespace, name)
        view = new_view(whole, body, NO_NAMESPACE_NAME)
        return self._shown(_about_views(lambda: self._client.put_view(view)))

    def replace(self, namespace: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        now = self.find(namespace, name)
        try:
            view = replaced_view(now, body, NO_NAMESPACE_NAME)
        except UnmetError as error:
            raise RestError(409, "CommitFailedException", str(error)) from error
        return self._shown(_about_views(lambda: self._client.put_view(view, or_replace=True, must_exist=True)))

    def rename(self, source: tuple[str, str], target: tuple[str, str]) -> None:
        view, name = self.find(*source), Writes(self._catalog).free_name(*target)
        try:
            self._client.rename_view(view.name, name)
        except MetaServiceError as error:
            raise cannot_rename(error, ".".join(source), ".".join(target), NO_VIEW) from error

    def drop(self, namespace: str, name: str) -> None:
        view = self.find(namespace, name)
        self._client.drop_view(view.name)

    def _all(self, namespace: str) -> Iterator[catalog_pb2.View]:
        branch = self._catalog.warehouse.branch
        if namespace == NO_NAMESPACE_NAME:
            yield from (view for view in self._client.list_views(branch=branch) if is_in(view.name, namespace))
        else:
            yield from self._client.list_views(namespace=namespace, branch=branch)

    def _shown(self, view: catalog_pb2.View) -> dict[str, Any]:
        location = location_of(f"{self._catalog.lake.warehouse}/{FOLDER}/{view.name}")
        metadata = view_metadata(view, location, NO_NAMESPACE_NAME)
        version = metadata["current-version-id"]
        place = f"{location}/metadata/{version:05d}-{metadata['view-uuid']}.metadata.json"
        return {"metadata-location": place, "metadata": metadata, "config": {}}


def _can_be_shown(view: catalog_pb2.View) -> bool:
    with suppress(InputError):
        view_schema(view)
        return True
    return False


def _about_views(ask: Callable[[], Answer]) -> Answer:
    """Call the service. An object that it doesn't find is a view."""
    try:
        return ask()
    except LakeTXError as error:
        raise problem_of(error, NO_VIEW) from error
