package io.laketx.spark.write;

import io.laketx.spark.read.TableRead;
import io.laketx.v1.Read;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.Dataset;

/** What a DataFrame reads of a table, for Python: of the one that its rows are written to, or of another. */
public final class PlanReads {
  private final List<TableRead> reads;

  private PlanReads(List<TableRead> reads) {
    this.reads = reads;
  }

  public static PlanReads of(Dataset<Row> rows, String tableId) {
    List<TableRead> all = PlanScans.of(rows.queryExecution().optimizedPlan());
    return new PlanReads(all.stream().filter(one -> one.snapshot().tableId().equals(tableId)).toList());
  }

  /** What it reads of the other tables of the lake with that warehouse, each by itself. */
  public static List<PlanReads> elsewhere(Dataset<Row> rows, String tableId, String warehouse) {
    Map<String, List<TableRead>> found = new LinkedHashMap<>();
    for (TableRead one : PlanScans.of(rows.queryExecution().optimizedPlan())) {
      if (!one.snapshot().service().address().warehouse().equals(warehouse)) continue;
      if (one.snapshot().tableId().equals(tableId)) continue;
      found.computeIfAbsent(one.snapshot().tableId(), id -> new ArrayList<>()).add(one);
    }
    return found.values().stream().map(PlanReads::new).toList();
  }

  public String tableId() {
    return reads.get(0).snapshot().tableId();
  }

  /** Of the columns that the reads name; -1: of several schemas. */
  public long schemaVersion() {
    List<Long> all = reads.stream().map(one -> one.snapshot().meta().getSchemaVersion()).distinct().toList();
    return all.size() == 1 ? all.get(0) : -1;
  }

  /** The oldest version at which a read was analysed; -1: there is none. */
  public long version() {
    return reads.stream().mapToLong(one -> one.snapshot().version()).min().orElse(-1);
  }

  /** As they are declared, each a Read of the wire. */
  public byte[][] reads() {
    Set<Read> declared = new LinkedHashSet<>();
    for (TableRead one : reads) declared.add(one.declared(false));
    return declared.stream().map(Read::toByteArray).toArray(byte[][]::new);
  }
}
