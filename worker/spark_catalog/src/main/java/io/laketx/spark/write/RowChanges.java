package io.laketx.spark.write;

import io.laketx.spark.read.LakeScan;
import io.laketx.spark.read.LakeScanBuilder;
import io.laketx.spark.read.MetadataColumns;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Column;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * DELETE, UPDATE and MERGE. A row of an append table is known by its `_row_id`, one of a primary-key table by its key,
 * beside which come the other columns that take no NULL: a tombstone has them too.
 */
public final class RowChanges implements SupportsDelta {
  static final String KEY_SET = "KEY_SET";

  private final Snapshot snapshot;
  private final String table;
  private final StructType schema;
  private final Command command;
  private final CaseInsensitiveStringMap write;
  private final List<LakeScan> scans = new ArrayList<>();

  /** `write`: options of the write that the table's name brought with it. */
  public RowChanges(
      String table, Snapshot snapshot, StructType schema, Command command, CaseInsensitiveStringMap write) {
    this.table = table;
    this.snapshot = snapshot;
    this.schema = schema;
    this.command = command;
    this.write = write;
  }

  /** Whether a row's key doesn't tell its partition, by NOT NULL columns. */
  static boolean hasPartitionOfNull(Table meta) {
    return meta.getPartitionColumnsList().stream().anyMatch(name -> WireValues.column(meta, name).getNullable());
  }

  static String keySet(String column) {
    return column + " is a key column: delete the row and insert another";
  }

  /** Whether the statement is an insert by key, for which the table isn't read. */
  static boolean isUpsert(Snapshot snapshot, Command command) {
    boolean staysOrIsLookedUp = !MetadataColumns.rowsMayMove(snapshot) || looksKeysUp(snapshot);
    return command == Command.MERGE && snapshot.isKeyed() && staysOrIsLookedUp && SparkPlans.isUpsert(snapshot.meta());
  }

  /** Whether an insert by key finds by itself where the keys live. */
  static boolean looksKeysUp(Snapshot snapshot) {
    return MetadataColumns.keySpansPartitions(snapshot.meta()) && !snapshot.isPartial();
  }

  @Override
  public Command command() {
    return command;
  }

  @Override
  public NamedReference[] rowId() {
    Table meta = snapshot.meta();
    if (!snapshot.isKeyed()) return new NamedReference[] {Names.column(MetadataColumns.ROW_ID)};
    return ofRowId(meta).stream().map(Names::column).toArray(NamedReference[]::new);
  }

  /** The key, and what else takes no NULL. */
  static List<String> ofRowId(Table meta) {
    List<String> found = new ArrayList<>(meta.getPrimaryKeyList());
    for (Column one : meta.getColumnsList()) {
      if (!one.getNullable() && !found.contains(one.getName())) found.add(one.getName());
    }
    return found;
  }

  @Override
  public NamedReference[] requiredMetadataAttributes() {
    boolean isPartition = command != Command.DELETE && MetadataColumns.rowsMayMove(snapshot);
    return new NamedReference[] {Names.column(isPartition ? MetadataColumns.PARTITION : MetadataColumns.FILE)};
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new LakeScanBuilder(
        table,
        snapshot,
        schema,
        new LakeScanBuilder.Statement() {
          @Override
          public void reads(LakeScan scan) {
            scans.add(scan);
          }

          @Override
          public boolean needsNoRows() {
            return isUpsert(snapshot, command);
          }
        });
  }

  @Override
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new DeltaWriteBuilder() {
      @Override
      public LakeDelta build() {
        String key = command == Command.UPDATE ? SparkPlans.firstSet(snapshot.meta().getPrimaryKeyList()) : null;
        if (key != null) throw LakeException.invalid(KEY_SET, keySet(key));
        return new LakeDelta(snapshot, command, scans, info, WriteOptions.of(info.options(), write));
      }
    };
  }
}
