"""A lake of a company: TLS, tokens, certificates and roles, from the admin's first step to a reader's query."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import laketx
from laketx import Credentials, DeniedError, Lake, NotFoundError
from tests.conformance.server import ROOT
from tests.integration.certificates import Authority
from tests.integration.service import service


@dataclass
class Company:
    """A running service, and how its people reach it."""

    address: str
    owner: str
    warehouse: Path
    ca: Path

    def connect(self, token: str) -> Lake:
        credentials = Credentials(ca_file=str(self.ca), token=token)
        return laketx.connect(self.address, warehouse=str(self.warehouse), credentials=credentials)

    def admin(self, *words: str) -> str:
        """What the command says to the owner of the service."""
        command = [sys.executable, "-m", "metaservice.cli", "--server", self.owner, "-q", *words]
        done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    folder = tmp_path_factory.mktemp("company")
    authority = Authority(folder / "authority")
    with service(folder / "data", "--tokens", "true", *authority.issue("meta").flags) as (running, _):
        owner = f"unix:{folder}/data/owner.sock"
        yield Company(f"laketxs://{running.address}", owner, folder / "lake", authority.file)


def test_from_the_first_token_to_a_query(company: Company) -> None:
    company.admin("namespace", "create", "shop")
    etl, ana = company.admin("token", "create", "etl"), company.admin("token", "create", "ana", "--group", "analysts")
    company.admin("grant", "writer", "etl", "--namespace", "shop")
    with company.connect(etl) as lake:
        orders = lake.create_table("shop.orders", "id bigint, amount double")
        orders.append([{"id": 1, "amount": 2.5}])
        hidden = lake.create_table("shop.salaries", "id bigint")
        hidden.append([{"id": 7}])
        assert next(lake.client.list_versions(orders.table_id)).principal.name == "etl"
    company.admin("grant", "reader", "group:analysts", "--table", "shop.orders")
    with company.connect(ana) as lake:
        assert lake.table("shop.orders").to_arrow().to_pylist() == [{"id": 1, "amount": 2.5}]
        with pytest.raises(NotFoundError, match="TABLE_UNKNOWN"):
            lake.table("shop.salaries")
        with pytest.raises(DeniedError, match="ROLE_MISSING"):
            lake.table("shop.orders").append([{"id": 2, "amount": 1.0}])
        assert lake.table("shop.orders").count() == 1
    assert company.admin("can", "reader", "--who", "group:analysts", "--table", "shop.orders") == ""
    assert "group:analysts" in company.admin("grants", "--table", "shop.orders")


def test_a_revoked_token_ends_a_lake_that_is_open(company: Company) -> None:
    company.admin("namespace", "create", "gone")
    token = company.admin("token", "create", "leaver")
    company.admin("grant", "admin", "leaver", "--namespace", "gone")
    with company.connect(token) as lake:
        table = lake.create_table("gone.t", "id bigint")
        table.append([{"id": 1}])
        company.admin("token", "revoke", token.split("_")[1], "--yes")
        with pytest.raises(DeniedError, match="TOKEN_INVALID"):
            table.append([{"id": 2}])


def test_the_name_in_a_certificate_is_the_principal(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    flags = ("--tls-client-ca", str(authority.file), "--admins", "boss.example", *authority.issue("meta").flags)
    with service(tmp_path / "data", *flags) as (running, _):
        address = f"laketxs://{running.address}"

        def who(name: str) -> laketx.MetaClient:
            shown = authority.issue(name, [name])
            files = Credentials(ca_file=str(authority.file), cert_file=str(shown.cert), key_file=str(shown.key))
            return laketx.MetaClient(address, principal="somebody", credentials=files)

        with who("boss.example") as boss, who("etl.example") as etl:
            assert (boss.whoami().principal, boss.whoami().how, boss.whoami().role) == (
                "boss.example",
                "certificate",
                4,
            )
            assert (etl.whoami().principal, etl.whoami().role) == ("etl.example", 0)
            with pytest.raises(DeniedError, match="ROLE_MISSING"):
                etl.create_namespace("mine")
            boss.create_namespace("mine")
