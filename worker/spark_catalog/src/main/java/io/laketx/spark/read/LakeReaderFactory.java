package io.laketx.spark.read;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes readers in the executors, of batches always. */
final class LakeReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1;

  private final Shape[] shapes;

  LakeReaderFactory(Shape[] shapes) {
    this.shapes = shapes;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("rows come in batches");
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return new LakeReader(shapes, (LakePartition) partition);
  }
}
