"""The notes beside a store on object storage by which standbys are known: one small object for each address."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Protocol
from urllib.parse import quote, unquote

from metaservice.store.lease.lease_object import answer_of_s3, s3_client
from metaservice.store.object_location import ObjectPlace

FOLDER: Final = "laketx-standbys"
NOTES_MAX: Final = 1000  # of one listing


class StandbyNotes(Protocol):
    """All raise OSError if the storage doesn't answer."""

    def write(self, address: str, number: int) -> None:
        """Writes the note of an address; each number makes it another."""

    def remove(self, address: str) -> None:
        """Removes the note of an address, if there is one."""

    def list_tags(self) -> Mapping[str, str]:
        """The addresses with notes; a tag changes with its note."""


class NotesInBucket(StandbyNotes):
    def __init__(self, place: ObjectPlace) -> None:
        self._s3 = s3_client()
        self._bucket = place.bucket
        self._folder = f"{place.path}/{FOLDER}/"

    def write(self, address: str, number: int) -> None:
        body = json.dumps({"address": address, "number": number}).encode()
        with answer_of_s3("the note can't be written"):
            self._s3.put_object(Bucket=self._bucket, Key=self._key(address), Body=body)

    def remove(self, address: str) -> None:
        with answer_of_s3("the note can't be removed"):
            self._s3.delete_object(Bucket=self._bucket, Key=self._key(address))

    def list_tags(self) -> Mapping[str, str]:
        with answer_of_s3("the notes can't be listed"):
            listing = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=self._folder, MaxKeys=NOTES_MAX)
            return {
                unquote(note["Key"][len(self._folder) :]): str(note["ETag"]) for note in listing.get("Contents", ())
            }

    def _key(self, address: str) -> str:
        return self._folder + quote(address, safe="")
