package io.laketx.spark.write;

import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.SqlTransaction;
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
import io.laketx.v1.Read;
import io.laketx.v1.RegisterFilesRequest;
import io.laketx.v1.RegisterFilesResponse;
import io.laketx.v1.RenewTransactionRequest;
import io.laketx.v1.RenewTransactionResponse;
import io.laketx.v1.Table;
import io.laketx.v1.TableCommit;
import io.laketx.v1.TableIntent;
import io.laketx.v1.TransactionServiceGrpc;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One statement's transaction on one table, from begin to commit; it is kept alive meanwhile. A statement of a transaction
 * of several only stages its files: they are committed with the others.
 */
final class WriteTransaction {
  private static final Logger LOG = LoggerFactory.getLogger(WriteTransaction.class);
  private static final int RENEWALS_PER_LEASE = 3;
  private static final int ENTRIES_A_MESSAGE = 500;
  private static final int FILES_A_COMMIT = 10_000;
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
  private final ConflictPolicy policy;
  private final Consumer<String> jobs;
  private final ScheduledFuture<?> heartbeat; // null in a transaction of several statements
  private final Operation operation;
  private final long readVersion;
  private final boolean isBlind;
  private boolean mayHaveCommitted;

  /** Of several statements. */
  private WriteTransaction(Snapshot snapshot, Beginning how) {
    this.snapshot = snapshot;
    operation = how.operation;
    readVersion = how.readVersion;
    isBlind = false;
    txnId = snapshot.transaction().id();
    policy = ConflictPolicy.FAIL;
    jobs = null;
    heartbeat = null;
  }

  private WriteTransaction(Snapshot snapshot, Beginning how, String txnId, long leaseMs) {
    this.snapshot = snapshot;
    this.operation = how.operation;
    this.readVersion = how.readVersion;
    this.isBlind = how.isBlind();
    this.txnId = txnId;
    this.policy = how.policy;
    ParquetOut.tagJobs(tag());
    jobs = ParquetOut.stopper(tag());
    long pauseMs = Math.max(leaseMs / RENEWALS_PER_LEASE, 1);
    heartbeat = HEARTBEATS.scheduleWithFixedDelay(this::renew, pauseMs, pauseMs, TimeUnit.MILLISECONDS);
  }

  /**
   * How a transaction begins. Whenever that is, `readVersion` is what the table was when Spark analysed its statement: what
   * was committed since is judged.
   */
  record Beginning(
      Operation operation,
      long schemaVersion,
      long readVersion,
      Collection<Read> reads,
      Collection<OtherReads> others,
      ConflictPolicy policy) {
    /** Whether its files mean the same on top of any other commit. */
    boolean isBlind() {
      return operation == Operation.OPERATION_INSERT && reads.isEmpty() && others.isEmpty();
    }
  }

  static WriteTransaction begin(Snapshot snapshot, Beginning how) {
    if (snapshot.transaction() != null) {
      WarehouseMark.leave(snapshot.service());
      snapshot.transaction().begin(snapshot);
      return new WriteTransaction(snapshot, how);
    }
    SqlTransaction.refuse("a change of a table of another lake");
    TableIntent.Builder intent =
        TableIntent.newBuilder()
            .setTableId(snapshot.tableId())
            .setOperation(how.operation)
            .setSchemaVersion(how.schemaVersion)
            .setReadVersion(how.readVersion)
            .addAllReads(how.reads);
    Service service = snapshot.service();
    WarehouseMark.leave(service);
    List<TableIntent> others = how.others.stream().map(OtherReads::intent).toList();
    BeginTransactionRequest request = beginning(service).addTables(intent).addAllTables(others).build();
    long leaseMs = service.ask(stubs -> stubs.transactions().beginTransaction(request)).getLeaseMs();
    return new WriteTransaction(snapshot, how, request.getTxnId(), leaseMs);
  }

  private static BeginTransactionRequest.Builder beginning(Service service) {
    return BeginTransactionRequest.newBuilder()
        .setTxnId(Ids.uuid7())
        .setPrincipal(service.principal())
        .addAllClientFeatures(Service.WRITTEN);
  }

  String id() {
    return txnId;
  }

  private boolean resubmits() {
    return policy != ConflictPolicy.FAIL && isBlind;
  }

  /** Whether its statement runs again after a lost race. */
  boolean reruns() {
    return policy == ConflictPolicy.RERUN && !isOneOfSeveral();
  }

  private String tag() {
    return "laketx-" + txnId;
  }

  /** The table's folder, which ends without a slash. */
  String tableFolder() {
    return folderOf(snapshot);
  }

  static String folderOf(Snapshot snapshot) {
    String within = snapshot.pathOf("x");
    return within.substring(0, within.length() - 2);
  }

  private boolean isOneOfSeveral() {
    return heartbeat == null;
  }

  TableCommit commit(
      List<DataFile> files, List<DeleteSet> deleteSets, Change.Builder change, Collection<OtherReads> others) {
    if (isOneOfSeveral()) {
      RegisterFilesRequest staged = message().addAllFiles(files).addAllDeleteSets(deleteSets).build();
      Change held = change.setTableId(snapshot.tableId()).build();
      snapshot.transaction().hold(snapshot, operation, staged, held, readVersion);
      return TableCommit.getDefaultInstance();
    }
    if (!files.isEmpty() || !deleteSets.isEmpty()) register(files, deleteSets);
    return commit(committing(change, others));
  }

  /** The same for an overwrite that redefines the table: its files are of a schema that only the commit makes. */
  TableCommit commitUnder(
      Table definition, List<DataFile> files, Change.Builder change, Collection<OtherReads> others) {
    if (files.size() > FILES_A_COMMIT) {
      throw LakeException.invalid(
          "TOO_MANY_FILES", "a statement that replaces a table writes at most " + FILES_A_COMMIT + " files, not "
              + files.size() + ": repartition its rows, or replace the table first and then insert");
    }
    Table.Builder replacement = definition.toBuilder().setTableId(snapshot.tableId());
    return commit(committing(change.clearFiles().addAllFiles(files), others).addReplacements(replacement));
  }

  /** The table that is changed comes first: so does its commit in the answer. */
  private CommitTransactionRequest.Builder committing(Change.Builder change, Collection<OtherReads> others) {
    return CommitTransactionRequest.newBuilder()
        .addChanges(change.setTableId(snapshot.tableId()))
        .addAllChanges(others.stream().map(OtherReads::change).toList());
  }

  private TableCommit commit(CommitTransactionRequest.Builder committing) {
    CommitTransactionResponse answer = ask(committing.setTxnId(txnId));
    for (int attempt = 2; answer.hasConflict(); attempt++) {
      boolean again = resubmits() && attempt <= ConflictPolicy.ATTEMPTS_MAX;
      if (!again || !ConflictPolicy.mayResubmit(answer.getConflict())) {
        throw Conflicts.of(answer.getConflict(), snapshot.meta().getName());
      }
      pause(attempt);
      answer = ask(committing.setTxnId(adopted(committing.getTxnId())));
    }
    mayHaveCommitted = true;
    end();
    return answer.getCommitted().getTables(0);
  }

  private CommitTransactionResponse ask(CommitTransactionRequest.Builder committing) {
    CommitTransactionRequest request = committing.build();
    try {
      return snapshot.service().ask(stubs -> stubs.transactions().commitTransaction(request));
    } catch (LakeException error) {
      mayHaveCommitted = error.kind() == RefusalKind.UNAVAILABLE;
      throw error;
    }
  }

  /** A new transaction that takes over the files of one that lost. */
  private String adopted(String lost) {
    TableIntent.Builder intent =
        TableIntent.newBuilder().setTableId(snapshot.tableId()).setOperation(Operation.OPERATION_INSERT);
    BeginTransactionRequest request = beginning(snapshot.service()).setAdoptFrom(lost).addTables(intent).build();
    snapshot.service().ask(stubs -> stubs.transactions().beginTransaction(request));
    return request.getTxnId();
  }

  /** Before an attempt. */
  static void pause(int attempt) {
    try {
      Thread.sleep(ConflictPolicy.pauseMs(attempt, 0.5 + ThreadLocalRandom.current().nextDouble() / 2));
    } catch (InterruptedException stop) {
      Thread.currentThread().interrupt();
    }
  }

  private void end() {
    if (isOneOfSeveral()) {
      snapshot.transaction().undo(snapshot);
      return;
    }
    heartbeat.cancel(false);
    ParquetOut.untagJobs(tag());
  }

  /** Ends it without effect and removes what it wrote; leaves it alone where it may have committed. */
  void abort() {
    end();
    if (mayHaveCommitted) return;
    if (!isOneOfSeveral()) tellAborted();
    try {
      ParquetOut.removeFolder(tableFolder() + "/" + txnId);
    } catch (IOException error) {
      LOG.debug("the files of a transaction are left to the sweep: {}", error.getMessage());
    }
  }

  private void tellAborted() {
    try {
      AbortTransactionRequest request =
          AbortTransactionRequest.newBuilder().setTxnId(txnId).setReason("the statement failed").build();
      snapshot.service().ask(stubs -> stubs.transactions().abortTransaction(request));
    } catch (LakeException error) {
      LOG.debug("a transaction is left to its lease: {}", error.getMessage());
    }
  }

  private void renew() {
    try {
      RenewTransactionRequest request = RenewTransactionRequest.newBuilder().setTxnId(txnId).build();
      RenewTransactionResponse answer =
          snapshot.service().ask(stubs -> stubs.transactions().renewTransaction(request));
      if (answer.hasDoomed() && !reruns() && !resubmits()) stop(Conflicts.of(answer.getDoomed(), snapshot.meta().getName()));
    } catch (LakeException error) {
      if (error.kind().mayPass()) return;
      stop(error);
    }
  }

  /** It can't commit any more: what Spark still does for it is in vain. */
  private void stop(LakeException why) {
    LOG.warn("cancelled, because it can't commit: {}", why.getMessage());
    heartbeat.cancel(false);
    jobs.accept(why.getMessage());
  }

  /** Fails where another commit has made it impossible that this one commits. */
  void checkNotDoomed() {
    if (isOneOfSeveral() || reruns()) return; // its begin comes with the commit; it is told then that it lost
    RenewTransactionRequest request = RenewTransactionRequest.newBuilder().setTxnId(txnId).build();
    RenewTransactionResponse answer =
        snapshot.service().ask(stubs -> stubs.transactions().renewTransaction(request));
    if (answer.hasDoomed()) throw Conflicts.of(answer.getDoomed(), snapshot.meta().getName());
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
