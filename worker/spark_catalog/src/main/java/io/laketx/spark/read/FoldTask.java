package io.laketx.spark.read;

import java.util.List;
import org.apache.spark.sql.types.StructType;

/**
 * The files of a bucket whose images are folded, since some set single columns.
 *
 * @param newer those above the lowest data version, the oldest first
 * @param lowest those of the lowest data version
 * @param columns the columns that the scan gives
 * @param ids of these, as {@link ImageFold} knows them
 */
public record FoldTask(List<FileTask> newer, List<FileTask> lowest, StructType columns, int[] ids) implements Unit {
  @Override
  public long bytes() {
    return newer.stream().mapToLong(FileTask::bytes).sum() + lowest.stream().mapToLong(FileTask::bytes).sum();
  }

  @Override
  public long shownMin() {
    return 0;
  }
}
