package io.laketx.spark.changes;

import io.laketx.spark.read.Unit;
import java.io.Serializable;
import java.util.List;

/**
 * The commits of a range in one bucket, whose rows are compared before and after each.
 *
 * @param before what the bucket shows before the first commit
 * @param wanted the row ids that the range hides, whose rows alone matter of those before; null in a primary-key table,
 *     and where the bucket is reset
 * @param isWhole whether every row before matters, because the bucket is reset
 * @param keys in a primary-key table that is not reset, the files of all commits, read for their keys
 */
record BucketChanges(List<Unit> before, byte[] wanted, boolean isWhole, List<Unit> keys, List<Step> steps)
    implements Serializable {

  /**
   * What one commit did.
   *
   * @param resets whether the rows that it has are all that there are then
   * @param rows the rows: new, of the whole bucket, or in a primary-key table also tombstones
   * @param gone the row ids that it hid, or null
   */
  record Step(long version, long timeUs, boolean resets, List<Unit> rows, byte[] gone) implements Serializable {}
}
