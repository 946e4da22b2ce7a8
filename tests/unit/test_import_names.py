"""Imports that pages once showed."""

import pytest


def test_connect_of_the_worker_says_where_it_is() -> None:
    with pytest.raises(ImportError, match=r"worker\.connect is laketx\.connect"):
        exec("from worker import connect")
