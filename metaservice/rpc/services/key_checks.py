"""Checks of keys at the edge: check, ask, convert."""

from __future__ import annotations

from metaservice.core.table.key_scope import KeyProgress
from metaservice.core.table.meta import Alteration
from metaservice.rpc.convert import wire
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.calls import Servicer
from metaservice.service.commit.requests import Alter
from protos.laketx.v1 import maintenance_pb2 as pb


class KeyCheckMethods(Servicer):
    """How far a check of keys is."""

    def AdvanceKeyCheck(self, request: pb.AdvanceKeyCheckRequest, context: Context) -> pb.AdvanceKeyCheckResponse:
        digest = wire.digest(request)
        seen = KeyProgress(request.check, request.begin, request.end, request.version)
        alter = Alter(
            txn_id=wire.txn_id(request.txn_id),
            table_id=wire.table_id(request.table_id),
            alteration=Alteration(checked_keys=seen),
            principal=wire.principal(request.principal),
            message=f"checked the keys of {seen.end} buckets",
            digest=digest,
            commit_digest=digest,
        )
        altered = self._ask(lambda: self._calls.catalog.alter(alter, validate_only=False))
        return pb.AdvanceKeyCheckResponse(version=altered.version)
