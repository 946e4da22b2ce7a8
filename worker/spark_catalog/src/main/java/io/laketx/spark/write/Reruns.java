package io.laketx.spark.write;

import io.laketx.spark.service.LakeException;

/** Statements that lost a race and run again: they read the newest version then. */
final class Reruns {
  private static final ThreadLocal<Integer> ATTEMPT = ThreadLocal.withInitial(() -> 1); // one runs within the other

  private Reruns() {}

  /** Runs the statement of a transaction again; throws what it lost by where it may not, or Spark has no text of it. */
  static void run(WriteTransaction txn, LakeException lost) {
    int attempt = ATTEMPT.get() + 1;
    boolean mayRun = txn.reruns() && lost.reason().equals(Conflicts.REASON) && attempt <= ConflictPolicy.ATTEMPTS_MAX;
    String statement = mayRun ? SparkPlans.statement() : null;
    if (statement == null) throw lost;
    txn.abort();
    WriteTransaction.pause(attempt);
    ATTEMPT.set(attempt);
    try {
      ParquetOut.session().sql(statement);
    } finally {
      ATTEMPT.set(attempt - 1);
    }
  }
}
