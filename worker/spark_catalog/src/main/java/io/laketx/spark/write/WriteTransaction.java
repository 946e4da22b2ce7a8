package io.laketx.spark.write;

import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.SqlTransaction;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import io.laketx.spark.service.SessionFrame;
import io.laketx.v1.AbortTransactionRequest;
import io.laketx.v1.BeginTransactionRequest;
import io.laketx.v1.BeginTransactionResponse;
import io.laketx.v1.Change;
import io.laketx.v1.CommitTransactionRequest;
import io.laketx.v1.CommitTransactionResponse;
import io.laketx.v1.Conflict;
import io.laketx.v1.DataFile;
import io.laketx.v1.DeleteSet;
import io.laketx.v1.ErrorKind;
import io.laketx.v1.Operation;
import io.laketx.v1.RegisterFilesRequest;
import io.laketx.v1.RenewTransactionRequest;
import io.laketx.v1.RenewTransactionResponse;
import io.laketx.v1.SessionCall;
import io.laketx.v1.SessionReply;
import io.laketx.v1.Table;
import io.laketx.v1.TableCommit;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One statement's transaction on one table, from begin to commit. It begins with its commit, in one call; where that takes
 * long it begins by itself, and is kept alive then. A statement of a transaction of several only stages its files: they are
 * committed with the others.
 */
final class WriteTransaction {
  private static final Logger LOG = LoggerFactory.getLogger(WriteTransaction.class);
  private static final int RENEWALS_PER_LEASE = 3;
  private static final long BEGIN_AFTER_MS = 10_000; // what takes longer should hear early that it can't commit
  private static final int FRAME_BYTES_MAX = 2 << 20; // of files that are registered in the call that commits
  private static final int ENTRIES_A_MESSAGE = 500;
  private static final int FILES_A_COMMIT = 10_000;
  private static final ScheduledThreadPoolExecutor HEARTBEATS =
      new ScheduledThreadPoolExecutor(
          2,
          work -> {
            Thread thread = new Thread(work, "laketx-heartbeats");
            thread.setDaemon(true);
            return thread;
          });

  static {
    HEARTBEATS.setRemoveOnCancelPolicy(true); // what has ended is let go
  }

  private final Snapshot snapshot;
  private final String txnId;
  private final ConflictPolicy policy;
  private final WriteOptions options;
  private final Consumer<String> jobs; // null in a transaction of several statements
  private final Operation operation;
  private final long readVersion;
  private final boolean isBlind;
  private final BeginTransactionRequest staging; // how another transaction would begin; null where it is this one
  private ScheduledFuture<?> heartbeat;
  private BeginTransactionRequest begin; // until it was answered
  private boolean isSent;
  private boolean isEnded;
  private boolean mayHaveCommitted;

  /** Of several statements, or one that another transaction commits. */
  private WriteTransaction(Snapshot snapshot, TransactionBegin how, String txnId) {
    this.snapshot = snapshot;
    operation = how.operation();
    readVersion = how.readVersion();
    isBlind = false;
    this.txnId = txnId;
    staging = how.request(snapshot);
    policy = ConflictPolicy.FAIL;
    options = how.options();
    jobs = null;
  }

  private WriteTransaction(Snapshot snapshot, TransactionBegin how, BeginTransactionRequest begin) {
    this.snapshot = snapshot;
    this.operation = how.operation();
    this.readVersion = how.readVersion();
    this.isBlind = how.isBlind();
    this.txnId = begin.getTxnId();
    this.policy = how.policy();
    staging = null;
    this.options = how.options();
    this.begin = begin;
    ParquetOut.tagJobs(tag());
    jobs = ParquetOut.stopper(tag());
  }

  /** `isNow`: the service hears of it at once. */
  static WriteTransaction begin(Snapshot snapshot, TransactionBegin how, boolean isNow) {
    if (snapshot.transaction() != null) {
      how.options().checkWithin();
      WarehouseMark.leave(snapshot.service());
      snapshot.transaction().begin(snapshot);
      return new WriteTransaction(snapshot, how, snapshot.transaction().id());
    }
    SqlTransaction.refuse("a change of a table of another lake");
    WarehouseMark.leave(snapshot.service());
    if (!how.options().stage().isEmpty()) return new WriteTransaction(snapshot, how, how.options().stage());
    WriteTransaction found = new WriteTransaction(snapshot, how, how.request(snapshot));
    boolean mayRunAgain = !snapshot.definition().isEmpty(); // for its definition: the commit finds out
    if (!mayRunAgain) found.beginSoon(isNow || snapshot.ageMs() > BEGIN_AFTER_MS);
    return found;
  }

  private void beginSoon(boolean isNow) {
    if (!isNow) {
      beginLater();
      return;
    }
    try {
      Conflict doomed = beginNow(); // what comes before the first row may have taken long
      if (doomed != null) throw Conflicts.of(doomed, snapshot.meta().getName());
    } catch (LakeException error) {
      abort();
      throw error;
    }
  }

  /** Begins, unless it has; returns what makes it pointless to go on, or null. */
  private synchronized Conflict beginNow() {
    if (begin == null || isEnded) return null;
    BeginTransactionRequest request = begin;
    isSent = true;
    BeginTransactionResponse answer =
        snapshot.service().ask(stubs -> stubs.transactions().beginTransaction(request));
    begun(answer);
    return answer.hasDoomed() && stops() ? answer.getDoomed() : null;
  }

  private synchronized void begun(BeginTransactionResponse answer) {
    if (begin == null) return;
    begin = null;
    if (heartbeat != null) heartbeat.cancel(false);
    long pauseMs = Math.max(answer.getLeaseMs() / RENEWALS_PER_LEASE, 1);
    heartbeat = HEARTBEATS.scheduleWithFixedDelay(this::renew, pauseMs, pauseMs, TimeUnit.MILLISECONDS);
  }

  /** In the background. Reads that the service can't take are left to the commit, which declares them anew. */
  private void beginByItself() {
    try {
      Conflict doomed = beginNow();
      if (doomed != null) stop(Conflicts.of(doomed, snapshot.meta().getName()));
    } catch (LakeException error) {
      if (error.mayPass()) beginLater();
      else if (error.kind() != ErrorKind.ERROR_KIND_INVALID || !dropReads()) stop(error);
      else beginByItself();
    }
  }

  private synchronized void beginLater() {
    if (!isEnded) heartbeat = HEARTBEATS.schedule(this::beginByItself, BEGIN_AFTER_MS, TimeUnit.MILLISECONDS);
  }

  /** Whether there were any. */
  private synchronized boolean dropReads() {
    if (begin == null) return false;
    BeginTransactionRequest before = begin;
    begin = TransactionBegin.withoutReads(before);
    return !begin.equals(before);
  }

  String id() {
    return txnId;
  }

  /** Whether the service has refused to begin it, if it was asked and has answered. */
  synchronized boolean isUnbegun() {
    return begin != null && !mayHaveCommitted;
  }

  String tableId() {
    return snapshot.tableId();
  }

  private boolean resubmits() {
    return policy != ConflictPolicy.FAIL && isBlind;
  }

  /** Whether a lost race is its end. What an application wrote before is applied, although it loses. */
  private boolean stops() {
    return !reruns() && !resubmits() && options.appVersions().isEmpty();
  }

  /** Whether it sees more than another one did. */
  boolean readsNewer(WriteTransaction other) {
    return !snapshot.tableId().equals(other.snapshot.tableId()) || readVersion > other.readVersion;
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
    return jobs == null;
  }

  TableCommit commit(
      List<DataFile> files, List<DeleteSet> deleteSets, Change.Builder change, Collection<OtherReads> others) {
    if (isOneOfSeveral()) {
      RegisterFilesRequest staged = message().addAllFiles(files).addAllDeleteSets(deleteSets).build();
      if (snapshot.transaction() == null) {
        CommitTransactionRequest commit = committing(change, others).build();
        WriteResults.staged(options.result(), WriteResult.staged(txnId, rowsOf(files), staging, staged, commit));
        return TableCommit.getDefaultInstance();
      }
      Change held = change.setTableId(snapshot.tableId()).build();
      List<String> features = staging.getClientFeaturesList();
      snapshot.transaction().hold(snapshot, operation, staged, held, readVersion, features);
      return TableCommit.getDefaultInstance();
    }
    long rows = rowsOf(files);
    if (files.isEmpty() && deleteSets.isEmpty()) return commit(committing(change, others), null, rows);
    change.setRegisteredFiles(files.size() + deleteSets.size());
    change.setRegisteredRows(rows);
    RegisterFilesRequest all = message().addAllFiles(files).addAllDeleteSets(deleteSets).build();
    boolean areFew = files.size() + deleteSets.size() <= ENTRIES_A_MESSAGE && all.getSerializedSize() <= FRAME_BYTES_MAX;
    if (!areFew) {
      beginNow();
      register(files, deleteSets);
    }
    return commit(committing(change, others), areFew ? all : null, rows);
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
    return commit(committing(change.clearFiles().addAllFiles(files), others).addReplacements(replacement), null, rowsOf(files));
  }

  private static long rowsOf(List<DataFile> files) {
    return files.stream().mapToLong(DataFile::getRows).sum();
  }

  /** The table that is changed comes first: so does its commit in the answer. */
  private CommitTransactionRequest.Builder committing(Change.Builder change, Collection<OtherReads> others) {
    if (change.getAppVersionsCount() == 0) change.addAllAppVersions(options.appVersions());
    return CommitTransactionRequest.newBuilder()
        .addChanges(change.setTableId(snapshot.tableId()))
        .addAllChanges(others.stream().map(OtherReads::change).toList());
  }

  /** `files`: what is registered with it, in the same call; null: all is. */
  private synchronized TableCommit commit(
      CommitTransactionRequest.Builder committing, RegisterFilesRequest files, long rows) {
    CommitTransactionResponse answer = ask(committing.setTxnId(txnId).build(), files);
    int attempt = 1;
    while (answer.hasConflict()) {
      attempt++;
      boolean again = resubmits() && attempt <= ConflictPolicy.ATTEMPTS_MAX;
      if (!again || !ConflictPolicy.mayResubmit(answer.getConflict())) {
        throw Conflicts.of(answer.getConflict(), snapshot.meta().getName());
      }
      pause(attempt);
      answer = adopted(committing);
    }
    mayHaveCommitted = true;
    end();
    TableCommit done = answer.getCommitted().getTables(0);
    if (done.getAlreadyApplied()) removeFiles();
    int attempts = Reruns.attempt() + attempt - 1;
    long written = done.getAlreadyApplied() ? 0 : rows;
    WriteResults.committed(options.result(), committing.getTxnId(), attempts, written, answer.getCommitted());
    return done;
  }

  /** In the call that commits the reads count; those of the begin would say the same. */
  private CommitTransactionResponse ask(CommitTransactionRequest commit, RegisterFilesRequest files) {
    try {
      return ask(begin == null ? null : TransactionBegin.withoutReads(begin), files, commit);
    } catch (LakeException error) {
      boolean isLate = begin != null && resubmits() && error.reason().equals("VERSION_RETIRED");
      if (!isLate) throw error;
      begin = TransactionBegin.atHead(begin); // as if it had lost to all commits since then
      return ask(begin, files, commit);
    }
  }

  /** In one call; each may be null but the last. */
  private CommitTransactionResponse ask(
      BeginTransactionRequest beginning, RegisterFilesRequest files, CommitTransactionRequest commit) {
    List<SessionCall> calls = new ArrayList<>();
    if (beginning != null) calls.add(SessionCall.newBuilder().setBegin(beginning).build());
    if (files != null) calls.add(SessionCall.newBuilder().setRegister(files).build());
    calls.add(SessionCall.newBuilder().setCommit(commit).build());
    isSent = true;
    try {
      return snapshot.service().ask(stubs -> SessionFrame.send(stubs, calls, this::heard)).getCommit();
    } catch (LakeException error) {
      mayHaveCommitted = error.kind() == ErrorKind.ERROR_KIND_UNAVAILABLE;
      if (mayHaveCommitted) WriteResults.unknown(options.result(), commit.getTxnId());
      throw error;
    }
  }

  private void heard(SessionReply reply) {
    if (reply.hasBegin()) begun(reply.getBegin());
  }

  /** A new transaction takes over the files of one that lost. */
  private CommitTransactionResponse adopted(CommitTransactionRequest.Builder committing) {
    BeginTransactionRequest request = TransactionBegin.adopting(snapshot, committing.getTxnId(), options);
    committing.setTxnId(request.getTxnId());
    committing.setChanges(0, committing.getChanges(0).toBuilder().clearRegisteredFiles().clearRegisteredRows());
    return ask(request, null, committing.build());
  }

  /** Before an attempt. */
  static void pause(int attempt) {
    try {
      Thread.sleep(ConflictPolicy.pauseMs(attempt, 0.5 + ThreadLocalRandom.current().nextDouble() / 2));
    } catch (InterruptedException stop) {
      Thread.currentThread().interrupt();
    }
  }

  private synchronized void end() {
    if (isOneOfSeveral()) {
      if (snapshot.transaction() != null) snapshot.transaction().undo(snapshot);
      return;
    }
    isEnded = true;
    if (heartbeat != null) heartbeat.cancel(false);
    ParquetOut.untagJobs(tag());
  }

  /** Ends it without effect and removes what it wrote; leaves it alone where it may have committed. */
  void abort() {
    end();
    if (mayHaveCommitted) return;
    if (isSent) tellAborted();
    removeFiles();
  }

  private void removeFiles() {
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
      if (answer.hasDoomed() && stops()) stop(Conflicts.of(answer.getDoomed(), snapshot.meta().getName()));
    } catch (LakeException error) {
      if (error.mayPass()) return;
      stop(error);
    }
  }

  /** It can't commit any more: what Spark still does for it is in vain. */
  private void stop(LakeException why) {
    LOG.warn("cancelled, because it can't commit: {}", why.getMessage());
    WriteResults.refused(options.result(), why);
    synchronized (this) {
      if (heartbeat != null) heartbeat.cancel(false);
    }
    jobs.accept(why.getMessage());
  }

  private void register(List<DataFile> files, List<DeleteSet> deleteSets) {
    List<RegisterFilesRequest> messages = new ArrayList<>();
    for (int at = 0; at < files.size(); at += ENTRIES_A_MESSAGE) {
      messages.add(message().addAllFiles(files.subList(at, Math.min(files.size(), at + ENTRIES_A_MESSAGE))).build());
    }
    for (DeleteSet one : deleteSets) messages.add(message().addDeleteSets(one).build()); // each may be large
    snapshot.service().ask(stubs -> SessionFrame.register(stubs, messages));
  }

  private RegisterFilesRequest.Builder message() {
    return RegisterFilesRequest.newBuilder().setTxnId(txnId).setTableId(snapshot.tableId());
  }
}
