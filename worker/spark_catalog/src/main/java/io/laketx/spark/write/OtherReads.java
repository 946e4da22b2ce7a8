package io.laketx.spark.write;

import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.TableRead;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Change;
import io.laketx.v1.Operation;
import io.laketx.v1.Read;
import io.laketx.v1.Table;
import io.laketx.v1.TableIntent;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What a statement read of another table than the one that it changes. Such a table joins the transaction, with a change
 * that changes nothing.
 */
record OtherReads(String tableId, long schemaVersion, long version, Set<Read> reads) {
  private static final String SETTING = "spark.laketx.isolation.reads";
  private static final String PROPERTY = "isolation.reads";
  private static final String ALL = "all";
  private static final String OF_TABLE = "table";

  /** Whether they are declared: the session's setting counts first, then the property of the table that is changed. */
  static boolean areDeclared(Table changed) {
    String said = ParquetOut.setting(SETTING, changed.getPropertiesOrDefault(PROPERTY, OF_TABLE));
    if (said.equals(ALL) || said.equals(OF_TABLE)) return said.equals(ALL);
    throw LakeException.invalid("ISOLATION_INVALID", "isolation.reads is table or all, not '" + said + "'");
  }

  /** Those among the reads that are of other tables of the lake than the changed one. */
  static List<TableRead> among(List<TableRead> reads, Snapshot changed) {
    String lake = changed.service().address().warehouse();
    return reads.stream()
        .filter(one -> !one.snapshot().tableId().equals(changed.tableId()))
        .filter(one -> one.snapshot().service().address().warehouse().equals(lake))
        .filter(one -> one.snapshot().meta().getRules().getCountsReads())
        .toList();
  }

  /** By their tables. `whole`: as reads of everything. */
  static Collection<OtherReads> of(List<TableRead> reads, boolean whole) {
    Map<String, OtherReads> found = new LinkedHashMap<>();
    for (TableRead one : reads) {
      Read declared = whole ? TableRead.ofAll(false) : one.declared(false);
      long schema = one.snapshot().meta().getSchemaVersion();
      String id = one.snapshot().tableId();
      found.merge(id, new OtherReads(id, schema, one.snapshot().version(), new LinkedHashSet<>(Set.of(declared))), OtherReads::and);
    }
    return found.values();
  }

  private OtherReads and(OtherReads more) {
    reads.addAll(more.reads);
    return new OtherReads(tableId, schemaVersion, Math.min(version, more.version), reads);
  }

  /** As the caller of the write declares it. */
  static OtherReads of(TableIntent read) {
    return new OtherReads(
        read.getTableId(), read.getSchemaVersion(), read.getReadVersion(), new LinkedHashSet<>(read.getReadsList()));
  }

  TableIntent intent() {
    return TableIntent.newBuilder()
        .setTableId(tableId)
        .setOperation(Operation.OPERATION_UPDATE)
        .setSchemaVersion(schemaVersion)
        .setReadVersion(version)
        .addAllReads(reads)
        .build();
  }

  Change change() {
    return Change.newBuilder().setTableId(tableId).addAllReads(reads).build();
  }
}
