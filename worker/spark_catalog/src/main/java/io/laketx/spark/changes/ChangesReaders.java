package io.laketx.spark.changes;

import io.laketx.spark.read.LakePartition;
import io.laketx.spark.read.LakeReader;
import java.io.IOException;
import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes readers in the executors; each partition knows how its files are opened. */
final class ChangesReaders implements PartitionReaderFactory {
  private static final long serialVersionUID = 1;

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return partition instanceof ChangesPartition.NewRows files && !files.asRows();
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    if (partition instanceof ChangesPartition.OfBucket bucket) return new BucketReader(bucket);
    return new NewRowsOneByOne(batches(partition));
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return batches(partition);
  }

  private static PartitionReader<ColumnarBatch> batches(InputPartition partition) {
    ChangesPartition.NewRows files = (ChangesPartition.NewRows) partition;
    return new LakeReader(files.shapes(), new LakePartition(files.files().units()));
  }

  private static final class NewRowsOneByOne implements PartitionReader<InternalRow> {
    private final PartitionReader<ColumnarBatch> batches;
    private Iterator<InternalRow> rows = Collections.emptyIterator();

    NewRowsOneByOne(PartitionReader<ColumnarBatch> batches) {
      this.batches = batches;
    }

    @Override
    public boolean next() throws IOException {
      while (!rows.hasNext()) {
        if (!batches.next()) return false;
        rows = batches.get().rowIterator();
      }
      return true;
    }

    @Override
    public InternalRow get() {
      return rows.next();
    }

    @Override
    public void close() throws IOException {
      batches.close();
    }
  }
}
