"""The warehouse at the edge: check, ask, convert."""

from __future__ import annotations

from dataclasses import dataclass

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.rpc import wire
from metaservice.service.decider import Decider
from metaservice.service.warehouse import Known, Warehouses
from protos.laketx.v1 import maintenance_pb2 as pb


@dataclass(frozen=True, slots=True)
class WarehouseCalls:
    """The calls, over the use cases."""

    decider: Decider
    warehouses: Warehouses

    def get(self, _request: pb.GetWarehouseRequest) -> pb.GetWarehouseResponse:
        return pb.GetWarehouseResponse(warehouse=_answer(self.decider.call(self.warehouses.get)))

    def put(self, request: pb.SetWarehouseRequest) -> pb.SetWarehouseResponse:
        if not request.location:
            raise invalid("PATH_INVALID", "a warehouse has a location")
        location = wire.text(request.location, "location", limits.PATH_CHARS_MAX)
        marked, replace = request.marked, request.replace
        known = self.decider.call(lambda: self.warehouses.put(location, marked=marked, replace=replace))
        return pb.SetWarehouseResponse(warehouse=_answer(known))


def _answer(known: Known) -> pb.Warehouse:
    return pb.Warehouse(
        service_id=known.service_id,
        history_epoch=known.epoch,
        location=known.warehouse.location,
        marked=known.warehouse.marked,
        unused=known.unused,
    )
