package io.laketx.spark.procedures;

import io.laketx.spark.service.Ids;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import io.laketx.spark.write.Conflicts;
import io.laketx.v1.AbortTransactionRequest;
import io.laketx.v1.BeginTransactionRequest;
import io.laketx.v1.Change;
import io.laketx.v1.CommitTransactionRequest;
import io.laketx.v1.CommitTransactionResponse;
import io.laketx.v1.ErrorKind;
import io.laketx.v1.Operation;
import io.laketx.v1.Scope;
import io.laketx.v1.Table;
import io.laketx.v1.TableIntent;

/** The transaction that brings back the rows of a version. It moves no data. */
final class Restore {
  private Restore() {}

  /** The version of its commit. */
  static long of(Service service, Table table, long version, String message) {
    String txn = Ids.uuid7();
    TableIntent intent =
        TableIntent.newBuilder()
            .setTableId(table.getTableId())
            .setOperation(Operation.OPERATION_RESTORE)
            .setReadVersion(Math.max(table.getHeadVersion(), version)) // as the procedure found it
            .build();
    BeginTransactionRequest begin =
        BeginTransactionRequest.newBuilder()
            .setTxnId(txn)
            .addTables(intent)
            .setPrincipal(service.principal())
            .setCommitMessage(message)
            .build();
    Change change =
        Change.newBuilder()
            .setTableId(table.getTableId())
            .setScope(Scope.newBuilder().setAll(true))
            .setRestoreVersion(version)
            .build();
    CommitTransactionRequest commit = CommitTransactionRequest.newBuilder().setTxnId(txn).addChanges(change).build();
    service.ask(stubs -> stubs.transactions().beginTransaction(begin));
    CommitTransactionResponse answer;
    try {
      answer = service.ask(stubs -> stubs.transactions().commitTransaction(commit));
    } catch (LakeException refused) {
      if (refused.kind() != ErrorKind.ERROR_KIND_UNAVAILABLE) abort(service, txn, refused);
      throw refused;
    }
    if (answer.hasConflict()) throw Conflicts.of(answer.getConflict(), table.getName());
    return answer.getCommitted().getTables(0).getVersion();
  }

  private static void abort(Service service, String txn, LakeException refused) {
    AbortTransactionRequest request =
        AbortTransactionRequest.newBuilder().setTxnId(txn).setReason(refused.reason()).build();
    try {
      service.ask(stubs -> stubs.transactions().abortTransaction(request));
    } catch (LakeException over) {
      refused.addSuppressed(over);
    }
  }
}
