package io.laketx.spark.write;

import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.Ids;
import io.laketx.spark.service.Service;
import io.laketx.v1.BeginTransactionRequest;
import io.laketx.v1.Operation;
import io.laketx.v1.Read;
import io.laketx.v1.TableIntent;
import java.util.Collection;
import java.util.List;

/**
 * How a transaction begins. Whenever that is, `readVersion` is what the table was when Spark analysed its statement: what
 * was committed since is judged.
 */
record TransactionBegin(
    Operation operation,
    long schemaVersion,
    long readVersion,
    Collection<Read> reads,
    Collection<OtherReads> others,
    ConflictPolicy policy,
    WriteOptions options,
    boolean looksKeysUp) {
  private static final String KEY_LOOKUPS = "key_lookups"; // each write that knows where its keys live says so itself
  private static final String PARTIAL_IMAGES = "partial_images"; // its images say what they set

  /** Whether its files mean the same on top of any other commit. */
  boolean isBlind() {
    return operation == Operation.OPERATION_INSERT && reads.isEmpty() && others.isEmpty() && !looksKeysUp;
  }

  /** The call for it, with an id of its own. */
  BeginTransactionRequest request(Snapshot snapshot) {
    TableIntent.Builder intent =
        TableIntent.newBuilder()
            .setTableId(snapshot.tableId())
            .setOperation(operation)
            .setSchemaVersion(schemaVersion)
            .setDefinition(snapshot.definition())
            .addAllReads(reads);
    if (snapshot.definition().isEmpty()) intent.setReadVersion(readVersion); // else it reads nothing, and the head counts
    List<TableIntent> besides = others.stream().map(OtherReads::intent).toList();
    BeginTransactionRequest.Builder found = unnamed(snapshot.service(), options);
    if (looksKeysUp) found.addClientFeatures(KEY_LOOKUPS);
    found.addAllClientFeatures(ofImages(snapshot));
    return found.addTables(intent).addAllTables(besides).build();
  }

  /** One that takes over the files of a blind INSERT that lost. */
  static BeginTransactionRequest adopting(Snapshot snapshot, String lost, WriteOptions options) {
    TableIntent.Builder intent =
        TableIntent.newBuilder().setTableId(snapshot.tableId()).setOperation(Operation.OPERATION_INSERT);
    return unnamed(snapshot.service(), options).setAdoptFrom(lost).addTables(intent).build();
  }

  /** The features that a write of the table needs for its images. */
  static List<String> ofImages(Snapshot snapshot) {
    return snapshot.isPartial() ? List.of(PARTIAL_IMAGES) : List.of();
  }

  private static BeginTransactionRequest.Builder unnamed(Service service, WriteOptions options) {
    return BeginTransactionRequest.newBuilder()
        .setTxnId(Ids.uuid7())
        .setPrincipal(service.principal())
        .setCommitMessage(options.message())
        .addAllClientFeatures(Service.WRITTEN);
  }

  /** The same without planned reads, for one that its commit follows at once: that names them. */
  static BeginTransactionRequest withoutReads(BeginTransactionRequest begin) {
    BeginTransactionRequest.Builder found = begin.toBuilder();
    for (int at = 0; at < begin.getTablesCount(); at++) found.setTables(at, begin.getTables(at).toBuilder().clearReads());
    return found.build();
  }

  /** The same at the newest version. */
  static BeginTransactionRequest atHead(BeginTransactionRequest begin) {
    BeginTransactionRequest.Builder found = begin.toBuilder();
    for (int at = 0; at < begin.getTablesCount(); at++) {
      found.setTables(at, begin.getTables(at).toBuilder().clearReadVersion());
    }
    return found.build();
  }
}
