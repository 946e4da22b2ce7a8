"""The previous release and the last build without features, each unpacked once."""

import pytest

from tests.upgrade.releases import WITHOUT_FEATURES, Release, UnknownReleaseError, release_before, unpack


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return unpack_or_skip(release_before(), tmp_path_factory)


@pytest.fixture(scope="session")
def featureless(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return unpack_or_skip(WITHOUT_FEATURES, tmp_path_factory)


def unpack_or_skip(name: str, tmp_path_factory: pytest.TempPathFactory) -> Release:
    try:
        return unpack(name, tmp_path_factory.mktemp("release"))
    except UnknownReleaseError as missing:
        pytest.skip(f"this clone does not have {name} (fetch the whole history): {missing}")
