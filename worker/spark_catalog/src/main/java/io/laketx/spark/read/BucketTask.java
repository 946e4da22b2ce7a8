package io.laketx.spark.read;

import java.util.List;

/**
 * The files of a bucket of a primary-key table that hide rows of each other.
 *
 * @param newer those above the lowest data version, the newest first
 * @param newerKeys the same files, their keys alone
 * @param lowest those of the lowest data version, with their keys
 * @param lowestKnown the same files without keys, for when it is known which rows are hidden
 * @param kept where that may be known from
 */
public record BucketTask(
    List<FileTask> newer,
    List<FileTask> newerKeys,
    List<FileTask> lowest,
    List<FileTask> lowestKnown,
    KeptVectors kept)
    implements Unit {
  @Override
  public long bytes() {
    return newer.stream().mapToLong(FileTask::bytes).sum() + lowest.stream().mapToLong(FileTask::bytes).sum();
  }

  @Override
  public long shownMin() {
    return 0;
  }
}
