package io.laketx.spark.changes;

import io.laketx.spark.WireTypes;
import io.laketx.spark.changes.Range.Looker;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.Service;
import io.laketx.v1.Table;
import java.util.Arrays;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.ChangelogContext.DeduplicationMode;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What Spark's CHANGES reads: `SELECT * FROM lake.shop.orders CHANGES FROM VERSION 4 TO VERSION 8`. Rows come as they
 * are in the log, updates with both images and nothing that changed nothing, so Spark has nothing to add.
 */
public final class LakeChangelog implements Changelog {
  private final String name;
  private final Snapshot table;
  private final ChangelogContext context;
  private final StructType columns;
  private final StructType whole;

  private LakeChangelog(String name, Snapshot table, ChangelogContext context) {
    this.name = name;
    this.table = table;
    this.context = context;
    columns = WireTypes.schemaOf(table.meta().getColumnsList());
    whole = ChangeColumns.beside(table, columns, ChangeColumns.TIMESTAMP);
  }

  public static LakeChangelog of(String name, Service service, Table newest, ChangelogContext context) {
    Long end = new Looker(service, newest.getTableId()).end(context.range());
    Snapshot table = end == null ? Snapshot.newest(service, newest) : Snapshot.at(service, newest, end).chosen();
    return new LakeChangelog(name, table, context);
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Column[] columns() {
    return Arrays.stream(whole.fields())
        .map(one -> Column.create(one.name(), one.dataType(), one.nullable()))
        .toArray(Column[]::new);
  }

  @Override
  public boolean containsCarryoverRows() {
    return false;
  }

  /** Where they are asked to be left out, the reader leaves them out. */
  @Override
  public boolean containsIntermediateChanges() {
    return false;
  }

  @Override
  public boolean representsUpdateAsDeleteAndInsert() {
    return false;
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    Looker look = new Looker(table.service(), table.tableId());
    boolean isNet = context.deduplicationMode() == DeduplicationMode.NET_CHANGES;
    ChangesMode mode = isNet ? ChangesMode.CHANGES : ChangesMode.LOG;
    return new ChangesScanBuilder(name, table, columns, whole, () -> look.begin(context.range()), mode, options);
  }
}
