package io.laketx.spark.write;

import io.laketx.spark.read.Conditions;
import io.laketx.spark.read.LakeScan;
import io.laketx.spark.read.MetadataColumns;
import io.laketx.spark.read.Snapshot;
import io.laketx.v1.Change;
import io.laketx.v1.DataFile;
import io.laketx.v1.DeleteSet;
import io.laketx.v1.FileKind;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Operation;
import io.laketx.v1.Predicate;
import io.laketx.v1.Read;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;

/** Rows that are hidden, changed and added by one DELETE, UPDATE or MERGE: one transaction. */
final class LakeDelta implements DeltaWrite, DeltaBatchWrite, RequiresDistributionAndOrdering {
  private final Snapshot snapshot;
  private final RowLevelOperation.Command command;
  private final List<LakeScan> scans;
  private final Spread spread;
  private final StructType metadata;
  private boolean changesAll;
  private WriteTransaction txn;

  LakeDelta(Snapshot snapshot, RowLevelOperation.Command command, List<LakeScan> scans, LogicalWriteInfo info) {
    this.snapshot = snapshot;
    this.command = command;
    this.scans = scans;
    metadata = info.metadataSchema().orElseGet(StructType::new);
    boolean haveParts =
        command != RowLevelOperation.Command.DELETE
            || (snapshot.isKeyed() && !RowChanges.hasPartitionOfNull(snapshot.meta()));
    spread = new Spread(snapshot.meta(), haveParts);
  }

  @Override
  public DeltaBatchWrite toBatch() {
    return this;
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

  private Operation operation() {
    return switch (command) {
      case DELETE -> Operation.OPERATION_DELETE;
      case UPDATE -> Operation.OPERATION_UPDATE;
      case MERGE -> Operation.OPERATION_MERGE;
    };
  }

  @Override
  public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
    changesAll = command != RowLevelOperation.Command.MERGE && !ParquetOut.mayHaveSubquery();
    txn = WriteTransaction.begin(snapshot, operation(), true);
    FileKind kind = snapshot.isKeyed() ? FileKind.FILE_KIND_DELTA : FileKind.FILE_KIND_UNSPECIFIED;
    Staging staging = new Staging(snapshot.meta(), txn.tableFolder(), txn.id(), kind, !snapshot.isKeyed());
    int file = List.of(metadata.fieldNames()).indexOf(MetadataColumns.FILE);
    return new DeltaRows.Factory(staging, spread.isOneBucket(), file, partitions());
  }

  /** The partition of each file that is read, for rows that may leave it; empty where there are none. */
  private HashMap<String, byte[]> partitions() {
    HashMap<String, byte[]> found = new HashMap<>();
    if (snapshot.meta().getPartitionColumnsCount() == 0 || command == RowLevelOperation.Command.DELETE) return found;
    filesRead().forEach((path, file) -> found.put(path, file.getPartition().toByteArray()));
    return found;
  }

  private Map<String, DataFile> filesRead() {
    Map<String, DataFile> found = new HashMap<>();
    for (LakeScan scan : scans) {
      for (LiveEntry one : scan.entries()) {
        if (one.hasFile()) found.put(one.getFile().getPath(), one.getFile());
      }
    }
    return found;
  }

  /** What the statement read of the table: the filters that Spark pushed down to it. */
  private Set<Read> reads() {
    Set<Read> found = new LinkedHashSet<>();
    for (LakeScan scan : scans) {
      Predicate condition = Conditions.of(scan.filters(), snapshot.meta());
      Predicate all = Predicate.newBuilder().setLiteral(true).build();
      found.add(Read.newBuilder().setPredicate(condition == null ? all : condition).setChangesAll(changesAll).build());
    }
    return found;
  }

  @Override
  public void commit(WriterCommitMessage[] messages) {
    Arrived arrived = Arrived.of(messages);
    List<DeleteSet> sets = new ArrayList<>();
    if (!arrived.hidden().isEmpty()) {
      sets = DeleteSets.of(arrived.hidden(), filesRead(), txn.tableFolder(), txn.id());
    }
    Change.Builder change = Change.newBuilder().addAllReads(reads()).addAllKeySets(arrived.keySets(snapshot.meta()));
    txn.commit(arrived.files(), sets, change);
  }

  @Override
  public void abort(WriterCommitMessage[] messages) {
    if (txn != null) txn.abort();
  }
}
