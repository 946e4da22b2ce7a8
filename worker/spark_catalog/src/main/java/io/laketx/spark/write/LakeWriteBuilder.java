package io.laketx.spark.write;

import io.laketx.spark.read.MetadataColumns;
import io.laketx.spark.read.Snapshot;
import io.laketx.v1.Operation;
import io.laketx.v1.PartitionList;
import io.laketx.v1.Scope;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/** INSERT INTO and INSERT OVERWRITE: of the whole table, of the partitions of a condition, or of those of the rows. */
public class LakeWriteBuilder implements SupportsOverwriteV2, SupportsDynamicOverwrite {
  private final Snapshot snapshot;
  private final LogicalWriteInfo info;
  private final WriteOptions options;
  private Operation operation = Operation.OPERATION_INSERT;
  private Scope scope;
  private PartitionCondition condition;

  private LakeWriteBuilder(Snapshot snapshot, LogicalWriteInfo info) {
    this.snapshot = snapshot;
    this.info = info;
    options = WriteOptions.of(info.options());
  }

  public static LakeWriteBuilder of(Snapshot snapshot, LogicalWriteInfo info) {
    return snapshot.isKeyed() ? new OfKeyed(snapshot, info) : new LakeWriteBuilder(snapshot, info);
  }

  /** A table with a key takes streams in update mode: what is put in takes the place of older images. */
  private static final class OfKeyed extends LakeWriteBuilder implements SupportsStreamingUpdateAsAppend {
    OfKeyed(Snapshot snapshot, LogicalWriteInfo info) {
      super(snapshot, info);
    }
  }

  @Override
  public WriteBuilder truncate() {
    operation = Operation.OPERATION_OVERWRITE;
    PartitionList named = options.partitions();
    scope = (named == null ? Scope.newBuilder().setAll(true) : Scope.newBuilder().setNamed(named)).build();
    return this;
  }

  @Override
  public WriteBuilder overwriteDynamicPartitions() {
    if (snapshot.meta().getPartitionColumnsCount() == 0) return truncate();
    operation = Operation.OPERATION_OVERWRITE;
    scope = Scope.newBuilder().setWritten(true).build();
    return this;
  }

  @Override
  public WriteBuilder overwrite(Predicate[] predicates) {
    condition = PartitionCondition.of(predicates, snapshot.meta());
    if (condition == null) throw PartitionCondition.refused(predicates, snapshot.meta());
    if (condition.isEverything()) {
      condition = null;
      return truncate();
    }
    operation = Operation.OPERATION_OVERWRITE;
    return this;
  }

  @Override
  public Write build() {
    boolean isAlone = snapshot.transaction() == null && options.stage().isEmpty();
    boolean looksUp = MetadataColumns.keysAreLookedUp(snapshot.meta()); // which tasks do
    boolean isInsert = operation == Operation.OPERATION_INSERT && isAlone && !looksUp;
    if (isInsert && GivenRows.areFew(snapshot.meta())) return LakeWrite.ofFewRows(snapshot, info);
    return new LakeWrite(snapshot, operation, scope, condition, null, info);
  }
}
