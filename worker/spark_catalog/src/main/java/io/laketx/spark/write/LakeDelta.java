package io.laketx.spark.write;

import io.laketx.spark.read.LakeScan;
import io.laketx.spark.read.MetadataColumns;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Change;
import io.laketx.v1.DataFile;
import io.laketx.v1.DeleteSet;
import io.laketx.v1.FileKind;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Operation;
import io.laketx.v1.Read;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
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
  private final WriteOptions options;
  private final boolean byFile; // its rows say by their file which partition they are of
  private final boolean mayMove; // they say it themselves, and may leave it
  private SetColumns sets; // null: its images are whole
  private StatementReads reads;
  private WriteTransaction txn;

  LakeDelta(
      Snapshot snapshot,
      RowLevelOperation.Command command,
      List<LakeScan> scans,
      LogicalWriteInfo info,
      WriteOptions options) {
    this.snapshot = snapshot;
    this.command = command;
    this.scans = scans;
    this.options = options;
    metadata = info.metadataSchema().orElseGet(StructType::new);
    boolean isDelete = command == RowLevelOperation.Command.DELETE;
    byFile = isDelete && snapshot.isKeyed() && RowChanges.hasPartitionOfNull(snapshot.meta());
    mayMove = !isDelete && MetadataColumns.rowsMayMove(snapshot);
    if (byFile) spread = Spread.byFile(snapshot.meta());
    else if (mayMove) spread = Spread.ofMoves(snapshot.meta());
    else spread = new Spread(snapshot.meta(), !isDelete || snapshot.isKeyed());
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
    options.noting(this::begin);
    FileKind kind = snapshot.isKeyed() ? FileKind.FILE_KIND_DELTA : FileKind.FILE_KIND_UNSPECIFIED;
    Staging staging = new Staging(snapshot.meta(), txn.tableFolder(), txn.id(), kind, !snapshot.isKeyed(), sets);
    if (RowChanges.looksKeysUp(snapshot) && RowChanges.isUpsert(snapshot, command)) {
      return new UpsertedRows(staging, KeyPlaces.of(snapshot, true), spread.isOneBucket());
    }
    int origin = List.of(metadata.fieldNames()).indexOf(mayMove ? MetadataColumns.PARTITION : MetadataColumns.FILE);
    return new DeltaRows.Factory(staging, spread.isOneBucket(), origin, byFile, mayMove, partitions());
  }

  private void begin() {
    Casts.check(snapshot.meta(), options, false);
    boolean changesAll = command != RowLevelOperation.Command.MERGE && !SparkPlans.mayHaveSubquery();
    reads = StatementReads.ofRowChange(snapshot, scans, changesAll, options);
    if (knowsItsKeys()) reads.lookKeysUp();
    if (command == RowLevelOperation.Command.UPDATE && snapshot.isPartial()) setColumns();
    if (command == RowLevelOperation.Command.MERGE && snapshot.isPartial()) mergeColumns();
    ConflictPolicy policy = options.policy(snapshot.meta(), false);
    txn = reads.begin(operation(), snapshot.meta().getSchemaVersion(), policy, options);
  }

  private void setColumns() {
    SparkPlans.Updated updated = SparkPlans.updated(snapshot.meta());
    sets = SetColumns.of(snapshot, updated);
    if (sets != null) reads.uses(SetColumns.used(snapshot.meta(), updated));
  }

  private void mergeColumns() {
    MergedColumns merged = MergedColumns.of(snapshot.meta());
    sets = merged == null ? null : SetColumns.of(snapshot, merged.updated());
    if (sets == null) return;
    boolean isUpsert = merged.isUpsert() && snapshot.meta().getRules().getWantsKeys();
    if (!isUpsert) sets = sets.withWholeNewRows();
    if (isUpsert) reads.areOfNoMatter();
    else reads.uses(SetColumns.used(snapshot.meta(), merged.updated()));
  }

  /** Whether no row that it adds can have a key that lives in another partition: its rows were read, all that count. */
  private boolean knowsItsKeys() {
    if (!MetadataColumns.keySpansPartitions(snapshot.meta())) return false;
    return command != RowLevelOperation.Command.MERGE || SparkPlans.mergesByKey(snapshot.meta());
  }

  /** The partition of each file that is read, where rows may leave it, or don't tell it otherwise. */
  private HashMap<String, byte[]> partitions() {
    HashMap<String, byte[]> found = new HashMap<>();
    boolean stay = snapshot.isKeyed() ? !byFile : command == RowLevelOperation.Command.DELETE;
    if (snapshot.meta().getPartitionColumnsCount() == 0 || stay) return found;
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

  @Override
  public void commit(WriterCommitMessage[] messages) {
    options.noting(() -> commitAll(messages));
  }

  private void commitAll(WriterCommitMessage[] messages) {
    Arrived arrived = arrived(messages);
    List<DeleteSet> sets = new ArrayList<>();
    if (!arrived.hidden().isEmpty()) {
      sets = DeleteSets.of(arrived.hidden(), filesRead(), txn.tableFolder(), txn.id());
    }
    boolean areFree = MetadataColumns.keySpansPartitions(snapshot.meta()); // no other row has the key
    List<Read> lookedAt = areFree ? List.of() : Landings.check(snapshot, arrived.landed());
    Change.Builder change = Change.newBuilder().addAllKeySets(arrived.keySets(snapshot.meta()));
    try {
      reads.commit(txn, arrived.files(), sets, change, lookedAt);
    } catch (LakeException lost) {
      Reruns.run(txn, lost);
    }
  }

  /** Of an upsert the table is read only to say what is wrong with it. */
  private Arrived arrived(WriterCommitMessage[] messages) {
    try {
      return Arrived.of(messages);
    } catch (LakeException error) {
      boolean isUnread = error.reason().equals("KEY_TWICE") && RowChanges.isUpsert(snapshot, command);
      if (isUnread && SparkPlans.hasManyMatches(snapshot.meta())) throw SparkPlans.manyMatches();
      throw error;
    }
  }

  @Override
  public void abort(WriterCommitMessage[] messages) {
    if (txn != null) txn.abort();
  }
}
