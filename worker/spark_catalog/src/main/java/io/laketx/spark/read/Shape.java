package io.laketx.spark.read;

import java.io.IOException;
import java.io.Serializable;
import org.apache.hadoop.fs.FileSystem;
import org.apache.spark.sql.types.DataType;

/**
 * How files are opened, and what becomes of their batches: where each column that the scan gives comes from, and where
 * in a batch that stands which tells the rows that are shown. -1: it is not read.
 */
public record Shape(SparkInternals.ParquetFiles parquet, Source[] sources, int index, int ownIds, int op, int[] keys, DataType[] keyTypes)
    implements Serializable {

  /** The storage that has a path, for a task. */
  public FileSystem storageOf(String path) throws IOException {
    return parquet.storageOf(path);
  }
}
