"""The programs that read deploy/, which may be missing here."""

from collections.abc import Callable
from typing import Any

import pytest

from tools.deploy_tools import NotCheckedError


def or_skip(check: Callable[[], Any]) -> Any:
    """A program that is missing here is a reason to leave a test out, as it is for `make deploy-check`."""
    try:
        return check()
    except NotCheckedError as error:
        pytest.skip(f"not checked here: {error}")
