"""The release before, unpacked once."""

import pytest

from tests.upgrade.releases import Release, UnknownReleaseError, release_before, unpack


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    name = release_before()
    try:
        return unpack(name, tmp_path_factory.mktemp("before"))
    except UnknownReleaseError as missing:
        pytest.skip(f"this clone does not have {name}, the release before (fetch the whole history): {missing}")
