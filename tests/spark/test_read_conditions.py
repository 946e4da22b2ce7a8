"""What a condition means on the wire is what Spark makes of it, row by row."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from metaservice.core.table.predicates import truth
from metaservice.rpc.convert.wire import _Predicates
from tests.spark.reading import ARROW
from tests.spark.sessions import shared_session
from worker.spark.conditions import parse_condition
from worker.spark.session import find_zone

TYPES = {
    "id": "bigint",
    "n": "int",
    "amount": "double",
    "part": "float",
    "price": "decimal(10,2)",
    "status": "string",
    "flag": "boolean",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "raw": "binary",
}
NOON = datetime(2026, 11, 1, 12, 0, 0, 500_000, tzinfo=UTC)
ROWS: list[tuple[Any, ...]] = [
    (1, 1, 1.5, 0.5, Decimal("1.00"), "ab", True, date(2026, 11, 1), NOON, NOON.replace(tzinfo=None), b"\x01"),
    (-7, 2, -0.0, 0.1, Decimal("-2.50"), "ä", False, date(1969, 12, 31), NOON.replace(year=1969), None, b""),
    (1 << 53, 3, 1e300, 3.0, Decimal("99999999.99"), "a_%", None, None, None, datetime(2026, 11, 1), b"\xff\x00"),  # noqa: DTZ001
    (None, None, None, None, None, None, None, None, None, None, None),
]
LEAVES = [
    "id = 1", "id <> 1", "id >= -7", "1 > id", "id IN (1, NULL)", "id NOT IN (1, -7)", "id <=> 1", "id <=> NULL",
    "n BETWEEN 1 AND 2", "n NOT BETWEEN 2 AND 3", "n = NULL", "n IN (2)", "n < 3000000000",
    "amount > 0", "amount = 0.0", "amount >= 1e300", "amount < 1.5", "amount IN (1.5, 2)",
    "part = 0.1", "part = 0.5", "part > 1", "part < 0.1e0",
    "price = 1", "price < 1.005", "price >= 99999999.99", "price IN (1, 2)", "price <> -2.5",
    "status = 'ab'", "status > 'a'", "status < 'z'", "status LIKE 'a%'", "status LIKE 'ab'", "status NOT LIKE 'a%'",
    "status IN ('ab', 'ä')", "status IS NULL", "status IS NOT NULL",
    "flag", "NOT flag", "flag = false", "flag <=> true",
    "day = '2026-11-01'", "day < DATE '1970-01-01'", "day >= '1969-12-31'", "day IN ('2026-11-01')",
    "at > '2026-11-01 13:00:00'", "at <= '2026-11-01 13:00:00.5'", "at < '2026-11-02'", "at < '1970-01-01'",
    "at = '2026-11-01T13:00:00.500'", "local = '2026-11-01 12:00:00.5'", "local = '2026-11-01'",
    "raw = X'01'", "raw > X'01'", "true", "false",
]  # fmt: skip
WHOLES = [
    "id = 1 OR n = 2 AND NOT flag",
    "NOT (id = 1 OR amount > 0)",
    "NOT (flag AND status = 'ab') AND id IS NOT NULL",
    "(id = 1 AND flag) OR (status LIKE 'a%' AND amount >= 1e300)",
    "! (n BETWEEN 1 AND 2) OR flag IS NULL",
    "((day = '2026-11-01')) AND (at IS NOT NULL OR local IS NULL)",
]


@pytest.fixture(scope="module")
def berlin() -> SparkSession:
    session = shared_session().newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    return session


@pytest.mark.parametrize("is_ansi", [True, False])
def test_every_condition_means_the_same(berlin: SparkSession, is_ansi: bool) -> None:
    berlin.conf.set("spark.sql.ansi.enabled", str(is_ansi).lower())
    conditions = [*LEAVES, *(f"NOT ({leaf})" for leaf in LEAVES), *WHOLES]
    zone = find_zone("Europe/Berlin")
    columns = [pa.array([row[at] for row in ROWS], ARROW[kind]) for at, kind in enumerate(TYPES.values())]
    table = pa.table(columns, names=list(TYPES))
    answers = berlin.createDataFrame(table).selectExpr(*(f"({one}) as c{at}" for at, one in enumerate(conditions)))
    judged = [_Predicates(TYPES).convert(parse_condition(one, TYPES, zone)) for one in conditions]
    known = [wire_row(row) for row in ROWS]
    for row, spark_row in zip(known, answers.collect(), strict=True):
        for at, condition in enumerate(conditions):
            assert truth(judged[at], row) == spark_row[at], (condition, row)
    assert all(str(one) != "Literal(truth=True)" for one, text in zip(judged, conditions, strict=True) if "id" in text)


def wire_row(row: tuple[Any, ...]) -> dict[str, Any]:
    values = dict(zip(TYPES, row, strict=True))
    if values["part"] is not None:
        values["part"] = float(pa.scalar(values["part"], pa.float32()).as_py())
    if values["day"] is not None:
        values["day"] = (values["day"] - date(1970, 1, 1)).days
    for name in ("at", "local"):
        if values[name] is not None:
            moment = values[name] if values[name].tzinfo else values[name].replace(tzinfo=UTC)
            values[name] = round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
    return values
