"""Whose a warehouse is."""

import pytest

from metaservice.service.operate.restoring import begin_history
from metaservice.store.engines.memory import MemoryStore
from metaservice.store.history import ensure_history, read_history
from protos.laketx.v1 import maintenance_pb2
from worker.base.errors import InputError
from worker.files.warehouse import WarehouseMark, check_mark, location_of

KNOWN = maintenance_pb2.Warehouse(service_id="aa", history_epoch="2-bb", location="/lake", marked=True)


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        (WarehouseMark("aa", "2-bb"), ""),
        (None, "WAREHOUSE_UNMARKED"),
        (WarehouseMark("cc", "2-bb"), "WAREHOUSE_FOREIGN"),
        (WarehouseMark("aa", "1-aa"), "WAREHOUSE_OF_OTHER_HISTORY"),
        (WarehouseMark("", ""), "WAREHOUSE_FOREIGN"),
    ],
)
def test_only_the_services_own_mark_of_this_history_is_taken(mark: WarehouseMark | None, reason: str) -> None:
    if not reason:
        check_mark(mark, KNOWN, "/lake")
        return
    with pytest.raises(InputError) as caught:
        check_mark(mark, KNOWN, "/elsewhere")
    assert caught.value.reason == reason
    assert "laketx warehouse adopt" in str(caught.value)


def test_a_service_keeps_its_id_through_restores_and_each_has_a_history_of_its_own() -> None:
    store = MemoryStore()
    first = ensure_history(store, "aa")
    assert (first.service_id, first.epoch) == ("aa", "1-aa")
    begin_history(store, "bb", 1)
    begin_history(store, "cc", 2)
    last = read_history(store)
    assert (last.service_id, last.epoch) == ("aa", "3-cc")


def test_spellings_of_one_place_are_one() -> None:
    assert len({location_of(one) for one in ("/lake", "/lake/", "file:/lake", "file:///lake/", "/x/../lake")}) == 1
