package io.laketx.spark.write;

import io.laketx.v1.DataFile;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;

/** A file of a table while it is written: rows of one partition and bucket. */
interface RowFile {
  void write(InternalRow row) throws IOException;

  /** Ends it; its entry learns how large it is, and which values it has. */
  void finish(DataFile.Builder entry) throws IOException;

  /** Leaves it unfinished. */
  void drop() throws IOException;
}
