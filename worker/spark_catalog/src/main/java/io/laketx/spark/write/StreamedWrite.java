package io.laketx.spark.write;

import io.laketx.spark.read.MetadataColumns;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.Ids;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.AppVersion;
import io.laketx.spark.service.Service;
import io.laketx.v1.AppendRequest;
import io.laketx.v1.AppendResponse;
import io.laketx.v1.Change;
import io.laketx.v1.DataFile;
import io.laketx.v1.FileKind;
import io.laketx.v1.GetTableRequest;
import io.laketx.v1.Operation;
import io.laketx.v1.Scope;
import io.laketx.v1.Table;
import io.laketx.v1.TableCommit;
import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A batch of a streaming query. The table remembers the query's last batch with the commit, so that a batch that comes
 * again, after a crash or a lost answer, changes nothing.
 *
 * <p>Rows that are added are appended in one call, which loses no race. A transaction replaces the table, in complete mode,
 * and adds rows that depend on what the table has, or whose keys are unique across partitions. It reads the table as it is
 * when the batch is planned.
 */
final class StreamedWrite implements StreamingWrite {
  private static final Logger LOG = LoggerFactory.getLogger(StreamedWrite.class);
  private static final String APP = "spark-stream-";

  private final Snapshot snapshot;
  private final boolean replaces;
  private final Spread spread;
  private final String queryId;
  private final int[] places;
  private final Snapshot replaced; // null where rows are added
  private final boolean looksKeysUp;
  private String txnId;
  private WriteTransaction txn;
  private StatementReads reads;
  private boolean mayBeCommitted;

  /** `places`: where the query has each column of the table; null: in the same places. */
  StreamedWrite(Snapshot snapshot, boolean replaces, Spread spread, String queryId, int[] places) {
    this.snapshot = snapshot;
    this.replaces = replaces;
    this.spread = spread;
    this.queryId = queryId;
    this.places = places;
    replaced = replaces ? newest() : null;
    looksKeysUp = MetadataColumns.keysAreLookedUp(snapshot.meta());
  }

  private Snapshot newest() {
    GetTableRequest request = GetTableRequest.newBuilder().setTableId(snapshot.tableId()).build();
    Table now = snapshot.service().ask(stubs -> stubs.catalog().getTable(request)).getTable();
    return Snapshot.newest(snapshot.service(), now);
  }

  @Override
  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
    WarehouseMark.leave(snapshot.service());
    Snapshot seen = replaces ? replaced : snapshot;
    reads = StatementReads.ofRows(seen, null, snapshot.meta(), WriteOptions.NONE);
    boolean isAppend = !replaces && !looksKeysUp && reads.areNone();
    if (!isAppend && !replaces) {
      seen = newest();
      reads = StatementReads.ofRows(seen, null, snapshot.meta(), WriteOptions.NONE);
    }
    if (looksKeysUp) reads.lookKeysUp();
    Operation operation = replaces ? Operation.OPERATION_OVERWRITE : Operation.OPERATION_INSERT;
    long schema = snapshot.meta().getSchemaVersion();
    txn = isAppend ? null : reads.begin(operation, schema, ConflictPolicy.FAIL, WriteOptions.NONE);
    txnId = txn == null ? Ids.uuid7() : txn.id();
    FileKind kind = FileKind.FILE_KIND_UNSPECIFIED;
    if (snapshot.isKeyed()) kind = replaces ? FileKind.FILE_KIND_BASE : FileKind.FILE_KIND_DELTA;
    boolean setsColumns = snapshot.isPartial() && !replaces;
    SetColumns sets = setsColumns ? SetColumns.given(snapshot.meta(), PlacedRow.given(snapshot.meta(), places)) : null;
    Staging staging = new Staging(snapshot.meta(), WriteTransaction.folderOf(snapshot), txnId, kind, false, sets);
    KeyPlaces livePlaces = looksKeysUp && !replaces ? KeyPlaces.of(seen, true) : null;
    return new Factory(staging, livePlaces, spread.isOneBucket(), places);
  }

  @Override
  public void commit(long batchId, WriterCommitMessage[] messages) {
    Arrived arrived = Arrived.of(messages);
    List<DataFile> files = arrived.files();
    AppVersion app = AppVersion.newBuilder().setAppId(APP + queryId).setVersion(batchId).build();
    TableCommit done;
    if (txn != null) {
      Change.Builder change = Change.newBuilder().addAppVersions(app).addAllKeySets(arrived.keySets(snapshot.meta()));
      if (replaces) change.setScope(Scope.newBuilder().setAll(true));
      done = reads.commit(txn, files, List.of(), change, List.of());
    } else {
      if (files.isEmpty()) return;
      done = append(files, app);
    }
    if (done.getAlreadyApplied()) removeFiles();
  }

  private TableCommit append(List<DataFile> files, AppVersion app) {
    AppendRequest request =
        AppendRequest.newBuilder()
            .addAllClientFeatures(Service.WRITTEN)
            .addAllClientFeatures(TransactionBegin.ofImages(snapshot))
            .setTxnId(txnId)
            .setTableId(snapshot.tableId())
            .setSchemaVersion(snapshot.meta().getSchemaVersion())
            .addAllFiles(files)
            .addAppVersions(app)
            .setPrincipal(snapshot.service().principal())
            .build();
    mayBeCommitted = true;
    AppendResponse answer = snapshot.service().ask(stubs -> stubs.transactions().append(request));
    if (answer.hasConflict()) {
      removeFiles();
      throw LakeException.invalid(
          "STREAM_SCHEMA_CHANGED",
          snapshot.meta().getName() + ": the table's columns or settings changed since the query began: start the query "
              + "again, it goes on with this batch");
    }
    return answer.getCommitted().getTables(0);
  }

  @Override
  public void abort(long batchId, WriterCommitMessage[] messages) {
    if (txn != null) txn.abort();
    else if (txnId != null && !mayBeCommitted) removeFiles(); // else the sweep finds out
  }

  private void removeFiles() {
    try {
      ParquetOut.removeFolder(WriteTransaction.folderOf(snapshot) + "/" + txnId);
    } catch (IOException error) {
      LOG.debug("the files of a batch are left to the sweep: {}", error.getMessage());
    }
  }

  /** `livePlaces`: where keys live that are unique across partitions; null where nothing of the table counts. */
  private record Factory(Staging staging, KeyPlaces livePlaces, boolean isOneBucket, int[] places)
      implements StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long batchId) {
      DataWriter<InternalRow> rows = LakeWrite.writer(staging, livePlaces, partition, task, isOneBucket);
      return places == null ? rows : new Placed(rows, staging, places);
    }
  }

  /** Rows of the query as rows of the table. */
  private static final class Placed implements DataWriter<InternalRow> {
    private final DataWriter<InternalRow> rows;
    private final PlacedRow placed;

    Placed(DataWriter<InternalRow> rows, Staging staging, int[] places) {
      this.rows = rows;
      placed = new PlacedRow(staging.types(), places);
    }

    @Override
    public void write(InternalRow row) throws IOException {
      rows.write(placed.of(row));
    }

    @Override
    public WriterCommitMessage commit() throws IOException {
      return rows.commit();
    }

    @Override
    public void abort() throws IOException {
      rows.abort();
    }

    @Override
    public void close() throws IOException {
      rows.close();
    }
  }
}
