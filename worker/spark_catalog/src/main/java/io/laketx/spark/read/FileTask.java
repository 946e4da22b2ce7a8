package io.laketx.spark.read;

import java.io.Serializable;

/**
 * A file, or a part of it, that a task reads.
 *
 * @param shape which of the scan's shapes
 * @param hiddenPositions a roaring bitmap of positions in the file, or null
 * @param hiddenIds the row ids hidden of a file that carries ids of its own, or null
 * @param values what one value says of the whole file
 * @param shownMin at least so many rows are shown
 * @param content the rows of an inlined file, or null
 */
public record FileTask(
    int shape,
    String path,
    long start,
    long length,
    long bytes,
    long firstRowId,
    byte[] hiddenPositions,
    byte[] hiddenIds,
    Object[] values,
    long shownMin,
    byte[] content)
    implements Unit, Serializable {

  /** To the end, however large the file is by its entry. */
  static final long ALL = Long.MAX_VALUE >> 1;

  FileTask part(long from, long count) {
    return new FileTask(
        shape, path, from, count, Math.min(count, bytes), firstRowId, hiddenPositions, hiddenIds, values, 0, null);
  }

  boolean isInlined() {
    return content != null;
  }

  @Override
  public long openCost(long ofFile) {
    return isInlined() ? 0 : ofFile;
  }
}
