package io.laketx.spark.write;

import io.laketx.spark.read.MetadataColumns;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NullOrdering;
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
  private final List<String> orderBy;

  /** `haveParts`: the rows have the partition columns. */
  Spread(Table meta, boolean haveParts) {
    this(meta, haveParts ? meta.getPartitionColumnsList() : List.of(), false, List.of());
  }

  private Spread(Table meta, List<String> placedBy, boolean mayMove, List<String> orderBy) {
    this.meta = meta;
    this.placedBy = placedBy;
    this.mayMove = mayMove;
    this.orderBy = orderBy;
  }

  /** For rows that may leave their partition: those that do come first, and so does what else has no place of its own. */
  static Spread ofMoves(Table meta) {
    return new Spread(meta, meta.getPartitionColumnsList(), true, List.of());
  }

  /** For rows that have the file that they lie in instead. */
  static Spread byFile(Table meta) {
    return new Spread(meta, List.of(MetadataColumns.FILE), false, List.of());
  }

  /** The same, with the newest row of each key first; the rows of an append table are sorted, those of all tasks. */
  Spread orderedBy(List<String> columns) {
    return new Spread(meta, placedBy, mayMove, columns);
  }

  private boolean isKeyed() {
    return meta.getPrimaryKeyCount() > 0;
  }

  Distribution distribution() {
    if (isKeyed()) return Distributions.clustered(new Expression[] {Buckets.taskOf(meta)});
    if (orderBy.isEmpty()) return Distributions.unspecified();
    return Distributions.ordered(orderBy.stream().map(Names::column).map(Spread::ascending).toArray(SortOrder[]::new));
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
    orderBy.forEach(name -> found.add(isKeyed() ? newestFirst(Names.column(name)) : ascending(Names.column(name))));
    return found.toArray(SortOrder[]::new);
  }

  private static SortOrder newestFirst(Expression by) {
    return Expressions.sort(by, SortDirection.DESCENDING, NullOrdering.NULLS_LAST);
  }

  private static SortOrder ascending(Expression by) {
    return Expressions.sort(by, SortDirection.ASCENDING);
  }
}
