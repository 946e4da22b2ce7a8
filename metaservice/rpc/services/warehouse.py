"""The warehouse at the edge: check, ask, convert."""

from __future__ import annotations

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.rpc.convert import wire
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.calls import Servicer
from metaservice.service.operate.warehouse import WarehouseFacts
from protos.laketx.v1 import maintenance_pb2 as pb


class WarehouseMethods(Servicer):
    """The warehouse."""

    def GetWarehouse(self, request: pb.GetWarehouseRequest, context: Context) -> pb.GetWarehouseResponse:
        return pb.GetWarehouseResponse(warehouse=_answer(self._ask(self._calls.warehouses.get)))

    def SetWarehouse(self, request: pb.SetWarehouseRequest, context: Context) -> pb.SetWarehouseResponse:
        if not request.location:
            raise invalid("PATH_INVALID", "the location is empty: name the warehouse's folder or URI")
        location = wire.text(request.location, "location", limits.PATH_CHARS_MAX)
        marked, replace = request.marked, request.replace
        stored = self._ask(lambda: self._calls.warehouses.put(location, marked=marked, replace=replace))
        return pb.SetWarehouseResponse(warehouse=_answer(stored))


def _answer(stored: WarehouseFacts) -> pb.Warehouse:
    return pb.Warehouse(
        service_id=stored.service_id,
        history_epoch=stored.epoch,
        location=stored.warehouse.location,
        marked=stored.warehouse.marked,
        unused=stored.unused,
    )
