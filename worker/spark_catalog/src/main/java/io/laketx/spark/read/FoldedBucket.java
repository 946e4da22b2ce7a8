package io.laketx.spark.read;

import io.laketx.spark.read.ImageFold.Image;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.RowToColumnConverter;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The rows of a bucket whose images are folded.
 *
 * <p>The images above the lowest data version are folded first and kept, one for each key. The rows of the lowest are read
 * past them: a key without an image is shown at once, others take part in the fold. What it left comes last.
 */
final class FoldedBucket implements PartitionReader<ColumnarBatch> {
  private static final int BATCH_ROWS = 4096;

  private final Shape[] shapes;
  private final FoldTask task;
  private final ImageFold fold;
  private final int width;
  private final ByteKeys keys;
  private final ColumnVector[] keyColumns;
  private final List<Image> images = new ArrayList<>(); // by the number of the key
  private final Deque<FileTask> lowest;
  private Iterator<Image> left;
  private ShownFile open;
  private ColumnarBatch made;
  private ColumnarBatch batch;

  FoldedBucket(Shape[] shapes, FoldTask task) throws IOException {
    this.shapes = shapes;
    this.task = task;
    width = task.columns().length();
    fold = new ImageFold(task.columns(), task.ids());
    keys = new ByteKeys(shapes[task.lowest().get(0).shape()].keyTypes());
    keyColumns = new ColumnVector[shapes[task.lowest().get(0).shape()].keyTypes().length];
    lowest = new ArrayDeque<>(task.lowest());
    for (FileTask file : task.newer()) {
      try (ShownFile read = new ShownFile(shapes[file.shape()], file, null)) {
        while (read.next()) addAll(read.get());
      }
    }
  }

  @Override
  public boolean next() throws IOException {
    while (true) {
      if (open != null && open.next()) {
        if (pass(open.get())) return true;
        continue;
      }
      closeFile();
      if (lowest.isEmpty()) return nextLeft();
      FileTask file = lowest.poll();
      open = new ShownFile(shapes[file.shape()], file, null);
    }
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() throws IOException {
    closeFile();
    if (made != null) made.close();
    made = null;
  }

  private void closeFile() throws IOException {
    if (open != null) open.close();
    open = null;
  }

  // -- images

  private void addAll(ColumnarBatch read) {
    turnTo(read);
    for (int row = 0; row < read.numRows(); row++) {
      Image image = imageAt(read, row);
      int key = keys.find(row);
      if (key >= 0) {
        images.set(key, fold.folded(images.get(key), image));
      } else {
        keys.add(row);
        images.add(image);
      }
    }
  }

  /** Shows the rows whose keys have no image; false if there are none. */
  private boolean pass(ColumnarBatch read) {
    turnTo(read);
    int count = read.numRows();
    int[] rows = new int[count];
    int shown = 0;
    for (int row = 0; row < count; row++) {
      int key = keys.find(row);
      if (key >= 0) images.set(key, fold.folded(imageAt(read, row), images.get(key)));
      else if (!isGone(read, row)) rows[shown++] = row;
    }
    if (shown == 0) return false;
    ColumnVector[] columns = new ColumnVector[width];
    for (int at = 0; at < width; at++) {
      columns[at] = shown == count ? read.column(at) : new ChosenRows(read.column(at), rows);
    }
    batch = new ColumnarBatch(columns, shown);
    return true;
  }

  private boolean nextLeft() {
    if (left == null) left = images.stream().filter(image -> !image.isGone()).iterator();
    if (made != null) made.close();
    made = null;
    if (!left.hasNext()) return false;
    WritableColumnVector[] columns = OnHeapColumnVector.allocateColumns(BATCH_ROWS, task.columns());
    RowToColumnConverter converter = new RowToColumnConverter(task.columns());
    int count = 0;
    for (; count < BATCH_ROWS && left.hasNext(); count++) converter.convert(left.next().row(), columns);
    made = new ColumnarBatch(columns, count);
    batch = made;
    return true;
  }

  // -- what shapes have beside the columns of the scan: the key, the operation, the bits

  private void turnTo(ColumnarBatch read) {
    Arrays.setAll(keyColumns, at -> read.column(width + at));
    keys.turnTo(keyColumns);
  }

  private Image imageAt(ColumnarBatch read, int row) {
    if (isGone(read, row)) return Image.TOMBSTONE;
    ColumnVector bits = read.column(width + keyColumns.length + 1);
    return new Image(fold.copy(read.getRow(row)), bits.isNullAt(row) ? null : bits.getBinary(row));
  }

  private boolean isGone(ColumnarBatch read, int row) {
    ColumnVector op = read.column(width + keyColumns.length);
    return !op.isNullAt(row) && op.getInt(row) == Hides.TOMBSTONE;
  }
}
