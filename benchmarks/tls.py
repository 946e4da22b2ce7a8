"""What TLS costs a commit, alone and with certificates of clients, tokens and rights. `make bench-tls`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.commit import make_table
from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.load import KINDS, Tally
from benchmarks.serving import Served, server
from benchmarks.turns import interleaved, over
from benchmarks.words import chosen
from metaservice.client import Credentials, MetaClient
from protos.laketx.v1 import access_pb2
from tests.integration.certificates import Authority

WRITERS = 32
EACH = 60  # transactions of one of the writers, in a turn
ALONE = 400  # of a writer that is alone
TURNS = 9
LEAST = 0.85
PROFILE = "delta_write_serializable"


class Way:
    """A service, a client of it, and what it was told."""

    def __init__(self, served: Served, client: MetaClient, table_id: str) -> None:
        self.client = client
        self.tallies = [Tally() for _ in range(WRITERS)]
        self.processor_s: list[float] = []  # of the client and the service, by turn
        self._table_id = table_id
        self._pid = served.pid

    def work(self, pool: ThreadPoolExecutor, writers: int, each: int) -> None:
        def write(tally: Tally) -> None:
            for _ in range(each):
                KINDS["begin_and_commit"](self.client, self._table_id, tally)

        before_s = self._used_s()
        list(pool.map(write, self.tallies[:writers]))
        self.processor_s.append(self._used_s() - before_s)

    def check(self) -> None:
        """Every acknowledged commit stands in the log under the version that was acknowledged."""
        log = {one.txn_id: one.version for one in self.client.list_versions(self._table_id)}
        lost = [txn for tally in self.tallies for txn, version in tally.acked if log.get(txn) != version]
        if lost:
            raise RuntimeError(f"{len(lost)} acknowledged commits are not in the log, for example {lost[0]}")

    def _used_s(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    chosen(__doc__)
    bench = Benchmark("tls", "TLS, tokens and rights", packages=["grpcio", "rocksdict"])
    with scratch() as folder, ExitStack() as open_, ThreadPoolExecutor(WRITERS) as pool:
        authority = Authority(folder / "authority")
        own, client_s = authority.issue("meta"), authority.issue("bench", ())
        trusted = Credentials(ca_file=str(authority.file))
        plain = open_.enter_context(server(folder / "plain"))
        tls = open_.enter_context(server(folder / "tls", *own.flags))
        flags = (*own.flags, "--tls-client-ca", str(authority.file), "--tokens", "true")
        guarded = open_.enter_context(server(folder / "guarded", *flags))
        with MetaClient(f"unix:{folder / 'guarded' / 'owner.sock'}", credentials=Credentials()) as owner:
            token = owner.create_token("bench").secret
            table_id = make_table(owner, PROFILE)
            owner.grant("user:bench", access_pb2.ROLE_WRITER, table_id=table_id)
        shown = Credentials(
            ca_file=str(authority.file), cert_file=str(client_s.cert), key_file=str(client_s.key), token=token
        )
        with MetaClient(plain.address, credentials=Credentials()) as client:
            plain_id = make_table(client, PROFILE)
        with MetaClient(f"laketxs://{tls.address}", credentials=trusted) as client:
            tls_id = make_table(client, PROFILE)
        ways = {
            "without TLS": Way(plain, MetaClient(plain.address, credentials=Credentials()), plain_id),
            "TLS": Way(tls, MetaClient(f"laketxs://{tls.address}", credentials=trusted), tls_id),
            "TLS, certificates of clients, tokens, rights": Way(
                guarded, MetaClient(f"laketxs://{guarded.address}", credentials=shown), table_id
            ),
        }
        for writers, each in ((WRITERS, EACH), (1, ALONE)):
            calls: dict[str, Callable[[], object]] = {
                name: partial(way.work, pool, writers, scaled(each)) for name, way in ways.items()
            }
            times = interleaved(calls, runs=TURNS)
            many = f"{writers} writers" if writers > 1 else "one writer"
            base, *others = ways
            rates = [writers * scaled(each) / one for one in times[base]]
            bench.add(f"{many}: begin, then commit, {base}", rates, unit="commits/s")
            for name in others:
                bench.add(f"{many}: {name}", over(times[base], times[name]), unit="of the rate", at_least=LEAST)
            for name in others:
                used = over(ways[base].processor_s[-TURNS:], ways[name].processor_s[-TURNS:])
                bench.add(f"{many}: {name}", used, unit="of the commits in the same processor time", at_least=LEAST)
        for way in ways.values():
            way.check()
            way.client.close()
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    raise SystemExit(main())
