package io.laketx.spark.write;

import io.laketx.spark.read.Snapshot;
import io.laketx.v1.Operation;
import io.laketx.v1.Scope;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;

/** All rows of a table that a statement makes or redefines. */
public final class DefiningWriteBuilder implements SupportsTruncate {
  private final Snapshot snapshot;
  private final NewDefinition definition;
  private final LogicalWriteInfo info;

  public DefiningWriteBuilder(Snapshot snapshot, NewDefinition definition, LogicalWriteInfo info) {
    this.info = info;
    this.snapshot = snapshot;
    this.definition = definition;
  }

  @Override
  public WriteBuilder truncate() {
    return this;
  }

  @Override
  public Write build() {
    Scope all = Scope.newBuilder().setAll(true).build();
    return new LakeWrite(snapshot, Operation.OPERATION_OVERWRITE, all, null, definition, info);
  }
}
