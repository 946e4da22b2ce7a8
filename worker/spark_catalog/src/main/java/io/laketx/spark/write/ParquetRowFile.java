package io.laketx.spark.write;

import io.laketx.v1.DataFile;
import io.laketx.v1.Table;
import java.io.IOException;
import java.io.InterruptedIOException;
import org.apache.hadoop.mapreduce.RecordWriter;
import org.apache.spark.sql.catalyst.InternalRow;

/** A file of Parquet in the table's folder. */
final class ParquetRowFile implements RowFile {
  private final Table meta;
  private final ParquetOut out;
  private final String path;
  private final RecordWriter<Void, InternalRow> open;

  ParquetRowFile(Table meta, ParquetOut out, String path) {
    this.meta = meta;
    this.out = out;
    this.path = path;
    open = out.open(path);
  }

  @Override
  public void write(InternalRow row) throws IOException {
    try {
      open.write(null, row);
    } catch (InterruptedException stopped) {
      throw interrupted(stopped);
    }
  }

  @Override
  public void finish(DataFile.Builder entry) throws IOException {
    drop();
    entry.setBytes(out.sizeOf(path));
    FileBounds.add(entry, meta, out.footerOf(path));
  }

  @Override
  public void drop() throws IOException {
    try {
      open.close(null);
    } catch (InterruptedException stopped) {
      throw interrupted(stopped);
    }
  }

  static IOException interrupted(InterruptedException stopped) {
    return (IOException) new InterruptedIOException().initCause(stopped);
  }
}
