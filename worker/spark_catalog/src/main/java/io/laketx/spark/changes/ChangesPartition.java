package io.laketx.spark.changes;

import io.laketx.spark.read.LakePartition;
import io.laketx.spark.read.Shape;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.types.StructType;

/** What one task reads of an increment: files whose rows are new, or the commits of a bucket. */
sealed interface ChangesPartition extends InputPartition {
  /** Files whose rows were all inserted; `asRows`: other tasks of the same scan give rows, not batches. */
  record NewRows(Shape[] shapes, LakePartition files, boolean asRows) implements ChangesPartition {}

  /**
   * A bucket.
   *
   * @param shapes of its rows, which are read with all columns of the table and one more: the row's id or whether it is a
   *     tombstone
   * @param keyShapes of its keys alone
   * @param columns the table's
   * @param ids theirs, where images may set single columns, which one more column tells of; else null
   * @param key where the key's columns are; empty in an append table
   * @param given for each column that is given, where it is among the table's, or one of the marks below
   */
  record OfBucket(
      Shape[] shapes,
      Shape[] keyShapes,
      BucketChanges bucket,
      StructType columns,
      int[] ids,
      int[] key,
      int[] given,
      ChangesMode mode)
      implements ChangesPartition {
    static final int TYPE = -1;
    static final int VERSION = -2;
    static final int TIME = -3;
    static final int SET = -4;
  }
}
