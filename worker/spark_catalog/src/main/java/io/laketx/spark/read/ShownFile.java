package io.laketx.spark.read;

import java.io.IOException;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The rows that a file shows, under the columns of the scan. */
final class ShownFile implements PartitionReader<ColumnarBatch> {
  private final Shape shape;
  private final FileTask task;
  private final Hides hides;
  private final PartitionReader<ColumnarBatch> inner;
  private int[] rows = new int[0];
  private ColumnarBatch last; // the batch that the columns below are of
  private ColumnVector[] whole;
  private ColumnVector[] some;
  private ColumnarBatch batch;

  /** `hides` is null where every row is shown. */
  ShownFile(Shape shape, FileTask task, Hides hides) {
    this.shape = shape;
    this.task = task;
    this.hides = hides;
    inner = shape.parquet().open(task);
  }

  @Override
  public boolean next() throws IOException {
    while (inner.next()) {
      ColumnarBatch read = inner.get();
      int count = read.numRows();
      if (rows.length < count) {
        rows = new int[count];
        last = null;
      }
      int shown = hides == null ? count : hides.shown(read, rows);
      if (shown == 0) continue;
      if (read != last) turnTo(read);
      batch = new ColumnarBatch(shown == count ? whole : some, shown);
      return true;
    }
    if (hides != null) hides.ended();
    return false;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() throws IOException {
    inner.close();
    SparkInternals.closed();
  }

  /** The columns stay what they are from batch to batch; what is in them changes. */
  private void turnTo(ColumnarBatch read) {
    last = read;
    whole = new ColumnVector[shape.sources().length];
    some = new ColumnVector[whole.length];
    for (int at = 0; at < whole.length; at++) {
      Source source = shape.sources()[at];
      whole[at] = column(read, source);
      boolean isSame = source.kind() == Source.Kind.NULL || source.kind() == Source.Kind.VALUE;
      some[at] = isSame ? whole[at] : new ChosenRows(whole[at], rows);
    }
  }

  private ColumnVector column(ColumnarBatch read, Source source) {
    return switch (source.kind()) {
      case READ -> read.column(source.at());
      case NULL -> new OneValue(null, source.type());
      case VALUE -> new OneValue(task.values()[source.at()], source.type());
      case ROW_ID -> {
        ColumnVector own = shape.ownIds() < 0 ? null : read.column(shape.ownIds());
        yield new IdsOfRows(own, read.column(shape.index()), task.firstRowId());
      }
    };
  }
}
