package io.laketx.spark.write;

import io.laketx.spark.service.LakeException;

/** Statements that lost a race and run again: they read the newest version then. */
final class Reruns {
  private static final ThreadLocal<Integer> ATTEMPT = ThreadLocal.withInitial(() -> 1); // one runs within the other

  private Reruns() {}

  /** Whether the statement that runs has attempts left. */
  static boolean mayRun() {
    return ATTEMPT.get() < ConflictPolicy.ATTEMPTS_MAX;
  }

  /** Runs the statement of a transaction again; throws what it lost by where it may not, or Spark has no text of it. */
  static void run(WriteTransaction txn, LakeException lost) {
    boolean mayRun = txn.reruns() && lost.reason().equals(Conflicts.REASON) && mayRun();
    String statement = mayRun ? SparkPlans.statement() : null;
    if (statement == null) throw lost;
    run(txn, () -> ParquetOut.session().sql(statement));
  }

  /** Ends a transaction, and begins its statement again. */
  static void run(WriteTransaction txn, Runnable statement) {
    int attempt = ATTEMPT.get() + 1;
    txn.abort();
    WriteTransaction.pause(attempt);
    ATTEMPT.set(attempt);
    try {
      statement.run();
    } finally {
      ATTEMPT.set(attempt - 1);
    }
  }
}
