package io.laketx.spark.read;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.RowToColumnConverter;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The rows of an inlined file, which are an Arrow stream, as one batch under the columns that are read of a file. */
final class InlinedRows implements PartitionReader<ColumnarBatch> {
  private final ColumnarBatch batch;
  private boolean isRead;

  private InlinedRows(ColumnarBatch batch) {
    this.batch = batch;
  }

  /** Columns and fields are found by the names that they have in the file, as in a Parquet file. */
  static InlinedRows open(byte[] content, StructType wanted) {
    try (BufferAllocator allocator = ArrowUtils.rootAllocator().newChildAllocator("laketx", 0, Long.MAX_VALUE);
        ArrowStreamReader stream = new ArrowStreamReader(new ByteArrayInputStream(content), allocator)) {
      VectorSchemaRoot root = stream.getVectorSchemaRoot();
      stream.loadNextBatch();
      int rows = root.getRowCount();
      WritableColumnVector[] columns = OnHeapColumnVector.allocateColumns(Math.max(rows, 1), wanted);
      fill(root, rows, wanted, columns);
      return new InlinedRows(new ColumnarBatch(columns, rows));
    } catch (IOException error) {
      throw new IllegalStateException("the rows of an inlined file can't be read: " + error.getMessage(), error);
    }
  }

  private static void fill(VectorSchemaRoot root, int rows, StructType wanted, WritableColumnVector[] columns) {
    StructType stored = ArrowUtils.fromArrowSchema(root.getSchema());
    int index = wanted.getFieldIndex(SparkInternals.ROW_INDEX).isDefined() ? wanted.fieldIndex(SparkInternals.ROW_INDEX) : -1;
    Conversion conversion = Conversion.ofRows(stored, wanted);
    RowToColumnConverter converter = new RowToColumnConverter(wanted);
    ColumnVector[] vectors = root.getFieldVectors().stream().map(InlinedRows::column).toArray(ColumnVector[]::new);
    ColumnarBatch batch = new ColumnarBatch(vectors, rows);
    for (int at = 0; at < rows; at++) {
      InternalRow row = (InternalRow) conversion.of(batch.getRow(at));
      if (index >= 0) row.setLong(index, at);
      converter.convert(row, columns);
    }
  }

  private static ColumnVector column(FieldVector vector) {
    return new ArrowColumnVector(vector);
  }

  @Override
  public boolean next() {
    boolean isFirst = !isRead;
    isRead = true;
    return isFirst && batch.numRows() > 0;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() {
    batch.close();
  }
}
