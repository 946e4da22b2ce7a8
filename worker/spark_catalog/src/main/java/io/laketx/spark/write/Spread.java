package io.laketx.spark.write;

import io.laketx.spark.read.MetadataColumns;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;

/**
 * How rows go to tasks, and in which order. Those of an append table stay where they are, sorted by partition; those of
 * a primary-key table go by bucket, sorted by partition and key.
 */
final class Spread {
  private final Table meta;
  private final List<String> placedBy;
  private final boolean mayMove;

  /** `haveParts`: the rows have the partition columns. */
  Spread(Table meta, boolean haveParts) {
    this(meta, haveParts ? meta.getPartitionColumnsList() : List.of(), false);
  }

  private Spread(Table meta, List<String> placedBy, boolean mayMove) {
    this.meta = meta;
    this.placedBy = placedBy;
    this.mayMove = mayMove;
  }

  /** For rows that may leave their partition: those that do come first, and so does what else has no place of its own. */
  static Spread ofMoves(Table meta) {
    return new Spread(meta, meta.getPartitionColumnsList(), true);
  }

  /** For rows that have the file that they lie in instead. */
  static Spread byFile(Table meta) {
    return new Spread(meta, List.of(MetadataColumns.FILE), false);
  }

  private boolean isKeyed() {
    return meta.getPrimaryKeyCount() > 0;
  }

  Distribution distribution() {
    return isKeyed()
        ? Distributions.clustered(new Expression[] {Buckets.taskOf(meta)})
        : Distributions.unspecified();
  }

  int tasks() {
    return isKeyed() ? Buckets.tasks(meta) : 0;
  }

  /** Whether a task gets rows of one bucket alone. */
  boolean isOneBucket() {
    return isKeyed() && tasks() == meta.getBuckets();
  }

  SortOrder[] ordering() {
    List<SortOrder> found = new ArrayList<>();
    if (isKeyed() && !isOneBucket()) found.add(ascending(Buckets.bucketOf(meta)));
    if (mayMove) found.add(ascending(Staying.of(meta)));
    placedBy.forEach(name -> found.add(ascending(Names.column(name))));
    meta.getPrimaryKeyList().forEach(name -> found.add(ascending(Names.column(name))));
    return found.toArray(SortOrder[]::new);
  }

  private static SortOrder ascending(Expression by) {
    return Expressions.sort(by, SortDirection.ASCENDING);
  }
}
