package io.laketx.spark.write;

import io.laketx.v1.DataFile;
import io.laketx.v1.Table;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.OutputWriter;

/** A file of Parquet in the table's folder. */
final class ParquetRowFile implements RowFile {
  private final Table meta;
  private final ParquetOut out;
  private final String path;
  private final OutputWriter open;

  ParquetRowFile(Table meta, ParquetOut out, String path) {
    this.meta = meta;
    this.out = out;
    this.path = path;
    open = out.open(path);
  }

  @Override
  public void write(InternalRow row) {
    open.write(row);
  }

  @Override
  public void finish(DataFile.Builder entry) throws IOException {
    open.close();
    entry.setBytes(out.sizeOf(path));
    FileBounds.add(entry, meta, out.footerOf(path));
  }

  @Override
  public void drop() {
    open.close();
  }
}
