package io.laketx.spark.write;

import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Change;
import io.laketx.v1.DataFile;
import io.laketx.v1.FileKind;
import io.laketx.v1.Operation;
import io.laketx.v1.Partition;
import io.laketx.v1.Scope;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/** Rows that come in, beside what is there or instead of it: one transaction. */
final class LakeWrite implements RequiresDistributionAndOrdering, BatchWrite {
  private final Snapshot snapshot;
  private final Operation operation;
  private final Scope scope;
  private final Spread spread;
  private final LogicalWriteInfo info;
  private WriteTransaction txn;

  /** `scope` is null where nothing is overwritten. */
  LakeWrite(Snapshot snapshot, Operation operation, Scope scope, LogicalWriteInfo info) {
    this.info = info;
    this.snapshot = snapshot;
    this.operation = operation;
    this.scope = scope;
    spread = new Spread(snapshot.meta(), true);
  }

  @Override
  public BatchWrite toBatch() {
    return this;
  }

  /** A query may run for months: it writes under the columns that it began with, and holds no version of the table. */
  @Override
  public StreamingWrite toStreaming() {
    int[] places = PlacedRow.places(snapshot.meta(), info.schema());
    snapshot.letGo();
    return new StreamedWrite(snapshot, scope != null, spread, info.queryId(), places);
  }

  static DataWriter<InternalRow> writer(Staging staging, int partition, long task, boolean isOneBucket) {
    return new Rows(new RowFiles(staging, partition, task, isOneBucket), staging.isKeyed());
  }

  @Override
  public String description() {
    return snapshot.meta().getName();
  }

  @Override
  public Distribution requiredDistribution() {
    return spread.distribution();
  }

  @Override
  public int requiredNumPartitions() {
    return spread.tasks();
  }

  @Override
  public SortOrder[] requiredOrdering() {
    return spread.ordering();
  }

  @Override
  public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
    txn = WriteTransaction.begin(snapshot, operation, false);
    FileKind kind = FileKind.FILE_KIND_UNSPECIFIED;
    if (snapshot.isKeyed()) kind = scope == null ? FileKind.FILE_KIND_DELTA : FileKind.FILE_KIND_BASE;
    Staging staging = new Staging(snapshot.meta(), txn.tableFolder(), txn.id(), kind, false);
    return new Factory(staging, spread.isOneBucket());
  }

  @Override
  public void commit(WriterCommitMessage[] messages) {
    Arrived arrived = Arrived.of(messages);
    if (scope != null && scope.hasNamed()) checkPartitions(arrived.files());
    Change.Builder change = Change.newBuilder().addAllKeySets(arrived.keySets(snapshot.meta()));
    if (scope != null) change.setScope(scope);
    txn.commit(arrived.files(), List.of(), change);
  }

  @Override
  public void abort(WriterCommitMessage[] messages) {
    if (txn != null) txn.abort();
  }

  private void checkPartitions(List<DataFile> files) {
    for (Partition named : scope.getNamed().getPartitionsList()) {
      for (DataFile one : files) {
        if (!WireValues.keyOf(one.getPartition()).equals(WireValues.keyOf(named))) {
          throw LakeException.invalid(
              "ROW_OUTSIDE_PARTITION", "there are rows of other partitions than the one that is overwritten");
        }
      }
    }
  }

  private record Factory(Staging staging, boolean isOneBucket) implements DataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
      return LakeWrite.writer(staging, partition, task, isOneBucket);
    }
  }

  private record Rows(RowFiles files, boolean isKeyed) implements DataWriter<InternalRow> {
    @Override
    public void write(InternalRow row) throws IOException {
      if (isKeyed) files.put(row);
      else files.append(row, null);
    }

    @Override
    public WriterCommitMessage commit() throws IOException {
      List<Told.Written> written = files.close();
      return new Told(written, Map.of(), files.refused());
    }

    @Override
    public void abort() {
      files.drop();
    }

    @Override
    public void close() {}
  }
}
