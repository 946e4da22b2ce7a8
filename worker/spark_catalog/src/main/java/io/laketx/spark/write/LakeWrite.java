package io.laketx.spark.write;

import io.laketx.spark.read.MetadataColumns;
import io.laketx.spark.read.PartitionKey;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Change;
import io.laketx.v1.DataFile;
import io.laketx.v1.FileKind;
import io.laketx.v1.Operation;
import io.laketx.v1.Partition;
import io.laketx.v1.PartitionList;
import io.laketx.v1.Scope;
import io.laketx.v1.Table;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
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
  private final PartitionCondition condition;
  private final NewDefinition definition;
  private final Spread spread; // null: tasks hand the rows to the driver
  private final LogicalWriteInfo info;
  private final WriteOptions options;
  private final boolean looksKeysUp;
  private SetColumns sets; // null: its images are whole
  private StatementReads reads;
  private WriteTransaction txn;

  /** An INSERT whose rows the driver writes. */
  static LakeWrite ofFewRows(Snapshot snapshot, LogicalWriteInfo info) {
    return new LakeWrite(snapshot, Operation.OPERATION_INSERT, null, null, null, info, null);
  }

  /**
   * `scope` is null where nothing is overwritten. `condition` tells which partitions are, where it is only known later;
   * `definition` is what the table gets with its rows. Each is null where there is none.
   */
  LakeWrite(
      Snapshot snapshot,
      Operation operation,
      Scope scope,
      PartitionCondition condition,
      NewDefinition definition,
      LogicalWriteInfo info) {
    this(snapshot, operation, scope, condition, definition, info, spread(snapshot, info));
  }

  private LakeWrite(
      Snapshot snapshot,
      Operation operation,
      Scope scope,
      PartitionCondition condition,
      NewDefinition definition,
      LogicalWriteInfo info,
      Spread spread) {
    this.snapshot = snapshot;
    this.operation = operation;
    this.scope = scope;
    this.condition = condition;
    this.definition = definition;
    this.info = info;
    this.spread = spread;
    options = WriteOptions.of(info.options());
    looksKeysUp = MetadataColumns.keysAreLookedUp(snapshot.meta());
  }

  private static Spread spread(Snapshot snapshot, LogicalWriteInfo info) {
    List<String> orderBy = WriteOptions.of(info.options()).orderBy(snapshot.meta());
    boolean isByKey = !orderBy.isEmpty() && MetadataColumns.keysAreLookedUp(snapshot.meta()); // in whatever partition
    return new Spread(snapshot.meta(), !isByKey).orderedBy(orderBy);
  }

  /** Whether its tasks hand the rows to the driver. */
  boolean handsRows() {
    return spread == null;
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

  /** `places`: where keys live that are unique across partitions; null where nothing of the table counts. */
  static DataWriter<InternalRow> writer(
      Staging staging, KeyPlaces places, int partition, long task, boolean isOneBucket) {
    RowFiles files = new RowFiles(staging, partition, task, isOneBucket);
    if (MetadataColumns.keysAreLookedUp(staging.meta())) return new SpanningRows(staging, places, files);
    return new Rows(files, staging.isKeyed());
  }

  @Override
  public String description() {
    return snapshot.meta().getName();
  }

  @Override
  public Distribution requiredDistribution() {
    return spread == null ? Distributions.unspecified() : spread.distribution();
  }

  @Override
  public int requiredNumPartitions() {
    return spread == null ? 0 : spread.tasks();
  }

  @Override
  public SortOrder[] requiredOrdering() {
    return spread == null ? new SortOrder[0] : spread.ordering();
  }

  @Override
  public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
    options.noting(this::begin);
    if (spread == null) return new GivenRows.Factory(Staging.typesOf(snapshot.meta()));
    boolean mayStay = looksKeysUp && definition == null && (scope == null || !scope.getAll());
    return new Factory(staging(), mayStay ? KeyPlaces.of(snapshot, kind() == FileKind.FILE_KIND_DELTA) : null, spread.isOneBucket());
  }

  private void begin() {
    boolean isInsert = operation == Operation.OPERATION_INSERT && !SparkPlans.isInsertOnlyMerge();
    if (isInsert && snapshot.isPartial()) sets = setColumns();
    Casts.check(snapshot.meta(), options, true);
    reads = StatementReads.ofRows(snapshot, condition, before(), options);
    boolean readsNothing = operation == Operation.OPERATION_INSERT && reads.areNone();
    boolean isBlind = readsNothing && !looksKeysUp;
    ConflictPolicy policy = options.policy(snapshot.meta(), readsNothing);
    if (!isBlind || policy == ConflictPolicy.FAIL) snapshot.look();
    if (looksKeysUp) {
      if (policy == ConflictPolicy.RESUBMIT) policy = ConflictPolicy.RERUN; // its keys live elsewhere by then
      if (definition == null) snapshot.hold();
      reads.lookKeysUp();
    }
    txn = begin(policy);
    if (isBlind) snapshot.written();
  }

  private SetColumns setColumns() {
    Set<String> given = SparkPlans.given(snapshot.meta());
    if (given != null) return SetColumns.given(snapshot.meta(), given);
    String why = "images of " + snapshot.meta().getName() + " set single columns, and nobody knows which ones the rows have";
    throw LakeException.invalid(
        "PARTIAL_IMAGES", why + ": name the session's extension io.laketx.spark.LakeExtensions, or give all columns by position");
  }

  private Staging staging() {
    return new Staging(snapshot.meta(), txn.tableFolder(), txn.id(), kind(), false, sets).orderedBy(orderBy());
  }

  private List<String> orderBy() {
    return options.orderBy(snapshot.meta());
  }

  private FileKind kind() {
    if (!snapshot.isKeyed()) return FileKind.FILE_KIND_UNSPECIFIED;
    return operation == Operation.OPERATION_INSERT ? FileKind.FILE_KIND_DELTA : FileKind.FILE_KIND_BASE;
  }

  /** The table before this write. */
  private Table before() {
    return definition == null ? snapshot.meta() : definition.before();
  }

  private WriteTransaction begin(ConflictPolicy policy) {
    boolean isMerge = SparkPlans.isInsertOnlyMerge(); // which Spark makes an append
    return reads.begin(isMerge ? Operation.OPERATION_MERGE : operation, before().getSchemaVersion(), policy, options, definition != null);
  }

  /** Does in the driver what Spark's tasks would do for few rows. */
  void insert(List<InternalRow> rows) {
    DataWriterFactory factory = createBatchWriterFactory(() -> 1);
    WriterCommitMessage[] messages = new WriterCommitMessage[1];
    try {
      DataWriter<InternalRow> writer = factory.createWriter(0, 0);
      for (InternalRow one : rows) writer.write(one);
      messages[0] = writer.commit();
      commit(messages);
    } catch (IOException error) {
      abort(messages);
      throw new UncheckedIOException(error);
    } catch (RuntimeException | Error cause) {
      abort(messages);
      throw cause;
    }
  }

  @Override
  public void commit(WriterCommitMessage[] messages) {
    options.noting(() -> commitAll(messages));
  }

  private void commitAll(WriterCommitMessage[] messages) {
    try {
      commitGiven(messages);
    } catch (LakeException refusal) {
      // the table may be another one than an earlier statement saw, or the name another table's
      if (snapshot.definition().isEmpty() || !txn.isUnbegun()) throw refusal;
      Reruns.runUnbegun(txn, refusal);
    }
  }

  private void commitGiven(WriterCommitMessage[] messages) {
    if (spread != null) {
      commit(Arrived.of(messages));
      return;
    }
    Arrived inlined = GivenRows.inlined(messages, Staging.inlined(snapshot.meta(), txn.id(), kind(), sets).orderedBy(orderBy()));
    try {
      if (inlined != null) commit(inlined);
      else commit(GivenRows.written(messages, staging()));
    } catch (LakeException refusal) {
      if (inlined == null || !GivenRows.areRefused(refusal.reason())) throw refusal;
      commit(GivenRows.written(messages, staging()));
    }
  }

  private void commit(Arrived arrived) {
    Change.Builder change = Change.newBuilder().addAllKeySets(arrived.keySets(snapshot.meta()));
    if (scope != null) change.setScope(scope);
    if (scope != null && scope.hasNamed()) checkWithin(scope.getNamed(), arrived.files());
    if (condition != null) condition.declare(change, snapshot, arrived.files());
    arrived.checkOverwrite(snapshot.meta(), change.getScope());
    try {
      commit(arrived, change);
    } catch (LakeException lost) {
      if (definition == null) Reruns.run(txn, lost);
      else if (isReplacement()) Reruns.runReplacement(txn, lost);
      else TakenNames.settle(txn, lost);
    }
  }

  private static void checkWithin(PartitionList named, List<DataFile> files) {
    Set<Object> known = new HashSet<>();
    for (Partition one : named.getPartitionsList()) known.add(PartitionKey.of(one));
    for (DataFile one : files) {
      if (known.contains(PartitionKey.of(one.getPartition()))) continue;
      throw LakeException.invalid("ROW_OUTSIDE_PARTITION", "rows belong to partitions that are not named");
    }
  }

  private void commit(Arrived arrived, Change.Builder change) {
    if (isReplacement()) {
      reads.commitUnder(txn, definition.table(), arrived.files(), change);
      return;
    }
    if (definition != null) change.setAlteration(definition.naming());
    reads.commit(txn, arrived.files(), List.of(), change, List.of());
  }

  private boolean isReplacement() {
    return definition != null && definition.table() != null;
  }

  @Override
  public void abort(WriterCommitMessage[] messages) {
    if (txn != null) txn.abort();
  }

  private record Factory(Staging staging, KeyPlaces places, boolean isOneBucket) implements DataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
      return LakeWrite.writer(staging, places, partition, task, isOneBucket);
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
      return Told.of(written, files.refused());
    }

    @Override
    public void abort() throws IOException {
      files.drop();
    }

    @Override
    public void close() {}
  }
}
