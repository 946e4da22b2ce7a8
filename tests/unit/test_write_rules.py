"""What a table's message says a write must declare."""

from protos.laketx.v1 import catalog_pb2
from worker.connection.table_view import write_rules


def test_a_service_that_says_no_rules_gets_every_read_and_no_keys() -> None:
    said = write_rules(catalog_pb2.Table(profile="row_level"))
    assert said == catalog_pb2.WriteRules(counts_reads=True, counts_key_lookups=True, takes_custom=True)


def test_the_rules_that_a_service_says_count_though_all_are_false() -> None:
    assert not write_rules(catalog_pb2.Table(rules=catalog_pb2.WriteRules())).counts_reads
