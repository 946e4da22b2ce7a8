package io.laketx.spark.write;

import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.Ids;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.RefusalKind;
import io.laketx.spark.service.Service;
import io.laketx.v1.AbortTransactionRequest;
import io.laketx.v1.BeginTransactionRequest;
import io.laketx.v1.Change;
import io.laketx.v1.CommitTransactionRequest;
import io.laketx.v1.CommitTransactionResponse;
import io.laketx.v1.DataFile;
import io.laketx.v1.DeleteSet;
import io.laketx.v1.Operation;
import io.laketx.v1.RegisterFilesRequest;
import io.laketx.v1.RegisterFilesResponse;
import io.laketx.v1.RenewTransactionRequest;
import io.laketx.v1.TableCommit;
import io.laketx.v1.TableIntent;
import io.laketx.v1.TransactionServiceGrpc;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** One statement's transaction on one table, from begin to commit; it is kept alive meanwhile. */
final class WriteTransaction {
  private static final Logger LOG = LoggerFactory.getLogger(WriteTransaction.class);
  private static final int RENEWALS_PER_LEASE = 3;
  private static final int ENTRIES_A_MESSAGE = 500;
  private static final ScheduledExecutorService HEARTBEATS =
      Executors.newScheduledThreadPool(
          2,
          work -> {
            Thread thread = new Thread(work, "laketx-heartbeats");
            thread.setDaemon(true);
            return thread;
          });

  private final Snapshot snapshot;
  private final String txnId;
  private final ScheduledFuture<?> heartbeat;
  private boolean mayHaveCommitted;

  private WriteTransaction(Snapshot snapshot, String txnId, long leaseMs) {
    this.snapshot = snapshot;
    this.txnId = txnId;
    long pauseMs = Math.max(leaseMs / RENEWALS_PER_LEASE, 1);
    heartbeat = HEARTBEATS.scheduleWithFixedDelay(this::renew, pauseMs, pauseMs, TimeUnit.MILLISECONDS);
  }

  /** `reads`: whether the statement reads the snapshot; a blind one begins at the head. */
  static WriteTransaction begin(Snapshot snapshot, Operation operation, boolean reads) {
    TableIntent.Builder intent =
        TableIntent.newBuilder()
            .setTableId(snapshot.tableId())
            .setOperation(operation)
            .setSchemaVersion(snapshot.meta().getSchemaVersion());
    if (reads) intent.setReadVersion(snapshot.version());
    String txnId = Ids.uuid7();
    BeginTransactionRequest request =
        BeginTransactionRequest.newBuilder()
            .setTxnId(txnId)
            .addTables(intent)
            .setPrincipal(snapshot.service().principal())
            .build();
    Service service = snapshot.service();
    long leaseMs = service.ask(stubs -> stubs.transactions().beginTransaction(request)).getLeaseMs();
    return new WriteTransaction(snapshot, txnId, leaseMs);
  }

  String id() {
    return txnId;
  }

  /** The table's folder, which ends without a slash. */
  String tableFolder() {
    return folderOf(snapshot);
  }

  static String folderOf(Snapshot snapshot) {
    String within = snapshot.pathOf("x");
    return within.substring(0, within.length() - 2);
  }

  TableCommit commit(List<DataFile> files, List<DeleteSet> deleteSets, Change.Builder change) {
    if (!files.isEmpty() || !deleteSets.isEmpty()) register(files, deleteSets);
    CommitTransactionRequest request =
        CommitTransactionRequest.newBuilder()
            .setTxnId(txnId)
            .addChanges(change.setTableId(snapshot.tableId()))
            .build();
    CommitTransactionResponse answer;
    try {
      answer = snapshot.service().ask(stubs -> stubs.transactions().commitTransaction(request));
    } catch (LakeException error) {
      mayHaveCommitted = error.kind() == RefusalKind.UNAVAILABLE;
      throw error;
    }
    if (answer.hasConflict()) throw Conflicts.of(answer.getConflict(), snapshot.meta().getName());
    mayHaveCommitted = true;
    heartbeat.cancel(false);
    return answer.getCommitted().getTables(0);
  }

  /** Ends it without effect and removes what it wrote; leaves it alone where it may have committed. */
  void abort() {
    heartbeat.cancel(false);
    if (mayHaveCommitted) return;
    try {
      AbortTransactionRequest request =
          AbortTransactionRequest.newBuilder().setTxnId(txnId).setReason("the statement failed").build();
      snapshot.service().ask(stubs -> stubs.transactions().abortTransaction(request));
    } catch (LakeException error) {
      LOG.debug("a transaction is left to its lease: {}", error.getMessage());
    }
    try {
      ParquetOut.removeFolder(tableFolder() + "/" + txnId);
    } catch (IOException error) {
      LOG.debug("the files of a transaction are left to the sweep: {}", error.getMessage());
    }
  }

  private void renew() {
    try {
      RenewTransactionRequest request = RenewTransactionRequest.newBuilder().setTxnId(txnId).build();
      snapshot.service().ask(stubs -> stubs.transactions().renewTransaction(request));
    } catch (LakeException error) {
      if (error.kind() == RefusalKind.UNAVAILABLE || error.kind() == RefusalKind.EXHAUSTED) return;
      LOG.warn("a transaction can't be kept alive: {}", error.getMessage());
      heartbeat.cancel(false);
    }
  }

  private void register(List<DataFile> files, List<DeleteSet> deleteSets) {
    List<RegisterFilesRequest> messages = new ArrayList<>();
    for (int at = 0; at < files.size(); at += ENTRIES_A_MESSAGE) {
      messages.add(message().addAllFiles(files.subList(at, Math.min(files.size(), at + ENTRIES_A_MESSAGE))).build());
    }
    for (DeleteSet one : deleteSets) messages.add(message().addDeleteSets(one).build()); // each may be large
    snapshot.service().ask(stubs -> send(stubs, messages));
  }

  private RegisterFilesRequest.Builder message() {
    return RegisterFilesRequest.newBuilder().setTxnId(txnId).setTableId(snapshot.tableId());
  }

  private static RegisterFilesResponse send(Service.Stubs stubs, List<RegisterFilesRequest> messages) {
    CompletableFuture<RegisterFilesResponse> answer = new CompletableFuture<>();
    StreamObserver<RegisterFilesRequest> out =
        TransactionServiceGrpc.newStub(stubs.transactions().getChannel())
            .registerFiles(
                new StreamObserver<>() {
                  @Override
                  public void onNext(RegisterFilesResponse response) {
                    answer.complete(response);
                  }

                  @Override
                  public void onError(Throwable error) {
                    answer.completeExceptionally(error);
                  }

                  @Override
                  public void onCompleted() {
                    answer.completeExceptionally(new IllegalStateException("no answer to a registration"));
                  }
                });
    for (RegisterFilesRequest one : messages) {
      if (answer.isDone()) break;
      out.onNext(one);
    }
    if (!answer.isDone()) out.onCompleted();
    try {
      return answer.join();
    } catch (CompletionException error) {
      if (error.getCause() instanceof StatusRuntimeException status) throw status;
      throw error;
    }
  }
}
