package io.laketx.spark.read;

import java.io.Serializable;
import org.apache.spark.sql.types.DataType;

/** Where a column that a scan gives comes from, file by file. `at` is a place in the batch or among a file's values. */
record Source(Kind kind, int at, DataType type) implements Serializable {
  enum Kind {
    /** A column of the file. */
    READ,
    /** NULL: the file is older than the column. */
    NULL,
    /** One value for the whole file: its partition's, its path, its version. */
    VALUE,
    /** The id of the row. */
    ROW_ID
  }
}
