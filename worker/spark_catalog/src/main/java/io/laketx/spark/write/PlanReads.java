package io.laketx.spark.write;

import io.laketx.spark.read.TableRead;
import io.laketx.v1.Read;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.Dataset;

/** What a DataFrame reads of a table that its rows are written to, for Python. */
public final class PlanReads {
  private final List<TableRead> reads;

  private PlanReads(List<TableRead> reads) {
    this.reads = reads;
  }

  public static PlanReads of(Dataset<Row> rows, String tableId) {
    List<TableRead> all = PlanScans.of(rows.queryExecution().optimizedPlan());
    return new PlanReads(all.stream().filter(one -> one.snapshot().tableId().equals(tableId)).toList());
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
