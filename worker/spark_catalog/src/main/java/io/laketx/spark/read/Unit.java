package io.laketx.spark.read;

import java.io.Serializable;

/** What a task reads as a whole: a part of a file, or a bucket. */
public sealed interface Unit extends Serializable permits FileTask, BucketTask, FoldTask {
  long bytes();

  long shownMin();

  /** What opening it costs, where that of a file is known. */
  default long openCost(long ofFile) {
    return ofFile;
  }
}
