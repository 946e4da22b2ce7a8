"""The grants and service tokens of a state. The decider's thread changes it; any thread can read it."""

from __future__ import annotations

from metaservice.core.access import Grants, Place, Token
from metaservice.store import keys
from metaservice.store.port import Batch, StoreCursor, prefix_end
from metaservice.store.records.access import decode_grant, decode_token


class AccessBook:
    """Who has which role, and the tokens by id."""

    def __init__(self, store: StoreCursor) -> None:
        found = store.scan(keys.GRANTS, prefix_end(keys.GRANTS))
        self.grants = Grants(decode_grant(key, raw) for key, raw in found)
        kept = store.scan(keys.TOKENS, prefix_end(keys.TOKENS))
        self.tokens: dict[str, Token] = {one.token_id: one for one in (decode_token(key, raw) for key, raw in kept)}

    def forget(self, place: Place, batch: Batch) -> None:
        """Drops the grants on what is gone: something else may get its name."""
        for grant in self.grants.at(place):
            self.grants.drop(place, grant.grantee)
            batch.delete(keys.grant_key(place.key, grant.grantee))
