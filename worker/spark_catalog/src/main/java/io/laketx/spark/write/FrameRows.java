package io.laketx.spark.write;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.OutputWriter;

/** The files of one attempt of a task: a new one begins where the folder changes, and where one is full. */
final class FrameRows implements DataWriter<InternalRow> {
  private final FrameFiles.Factory into;
  private final String prefix;
  private final List<String> paths = new ArrayList<>();
  private final ProjectingInternalRow columns; // of rows that say more; null: rows are written as they are
  private OutputWriter open;
  private Object part;
  private long rows;

  /** `prefix` begins the names of its files, and of no other's. */
  FrameRows(FrameFiles.Factory into, String prefix) {
    this.into = into;
    this.prefix = prefix;
    columns = into.part() == null ? null : SparkPlans.leading(into.columns());
  }

  @Override
  public void write(InternalRow row) throws IOException {
    Object its = columns == null ? null : row.get(columns.numFields(), into.part());
    boolean isFull = into.rowsMax() > 0 && rows >= into.rowsMax();
    if (open == null || isFull || !Objects.equals(its, part)) begin(its);
    if (columns != null) columns.project(row);
    open.write(columns == null ? row : columns);
    rows++;
  }

  private void begin(Object its) throws IOException {
    finish();
    part = WireValues.kept(its);
    String name = prefix + paths.size() + ".parquet";
    String path = part == null ? name : FrameFiles.PART + "=" + part + "/" + name;
    paths.add(path);
    open = into.out().open(into.folder() + "/" + path);
    rows = 0;
  }

  private void finish() throws IOException {
    OutputWriter closing = open;
    open = null;
    if (closing != null) closing.close();
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    finish();
    return new FrameFiles.Done(paths);
  }

  /** Removes what it wrote; what remains when that fails, nobody knows of. */
  @Override
  public void abort() throws IOException {
    try {
      finish();
    } finally {
      for (String path : paths) into.out().remove(into.folder() + "/" + path);
    }
  }

  @Override
  public void close() {}
}
