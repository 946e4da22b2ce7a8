package io.laketx.spark.write;

import io.laketx.spark.read.Snapshot;
import io.laketx.v1.Change;
import io.laketx.v1.Operation;
import io.laketx.v1.Scope;
import java.util.List;

/** TRUNCATE TABLE, and DELETE without a condition: no row is looked at. */
public final class Truncation {
  private Truncation() {}

  public static void run(Snapshot snapshot) {
    WriteTransaction txn = WriteTransaction.begin(snapshot, Operation.OPERATION_TRUNCATE, false);
    try {
      txn.commit(List.of(), List.of(), Change.newBuilder().setScope(Scope.newBuilder().setAll(true)));
    } catch (RuntimeException error) {
      txn.abort();
      throw error;
    }
  }
}
