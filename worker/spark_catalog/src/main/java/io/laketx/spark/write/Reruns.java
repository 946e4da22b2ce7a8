package io.laketx.spark.write;

import io.laketx.spark.service.LakeException;
import org.apache.spark.sql.execution.QueryExecution;

/** Statements that lost a race and run again: they read the newest version then. */
public final class Reruns {
  private static final ThreadLocal<Attempt> ATTEMPT = ThreadLocal.withInitial(() -> new Attempt(1, null));

  /** One runs within the other. `lost`: the transaction of the one before; null before the first has lost. */
  private record Attempt(int number, WriteTransaction lost) {}

  private Reruns() {}

  /** Waits before a procedure makes its next attempt; throws what it lost by where it may make none. */
  public static void pause(ConflictPolicy policy, int attempt, LakeException lost) {
    boolean again = policy == ConflictPolicy.RERUN && attempt < ConflictPolicy.ATTEMPTS_MAX;
    if (!again || !Conflicts.END_IN.contains(lost.reason())) throw lost;
    WriteTransaction.pause(attempt + 1);
  }

  /** The number of the attempt that this thread makes. */
  static int attempt() {
    return ATTEMPT.get().number;
  }

  /** Runs the statement of a transaction again; throws what it lost by where it may not. */
  static void run(WriteTransaction txn, LakeException lost) {
    if (!txn.reruns() || !Conflicts.END_IN.contains(lost.reason())) throw lost;
    run(txn, SparkPlans.execution(), lost);
  }

  /** The same for one that redefines a table. */
  static void runReplacement(WriteTransaction txn, LakeException lost) {
    if (!txn.reruns() || !Conflicts.END_IN.contains(lost.reason())) throw lost;
    run(txn, SparkPlans.replacement(), lost);
  }

  /** Runs the statement of a transaction again that could not begin; it looks at its table then. */
  static void runUnbegun(WriteTransaction txn, LakeException refusal) {
    run(txn, SparkPlans.execution(), refusal);
  }

  /** Whether the statement that this thread runs has been tried before. */
  public static boolean isRerun() {
    return ATTEMPT.get().number > 1;
  }

  /** Ends a transaction, and runs a statement again; throws what it lost by where that can't be, or would lose again. */
  static void run(WriteTransaction txn, QueryExecution statement, LakeException lost) {
    Attempt before = ATTEMPT.get();
    boolean wouldLose = before.lost != null && !txn.readsNewer(before.lost); // its rows are a version's, whatever comes
    if (wouldLose || before.number == ConflictPolicy.ATTEMPTS_MAX) throw lost;
    if (!Repetition.mayBe(statement, txn.tableId())) throw lost;
    txn.abort();
    WriteTransaction.pause(before.number + 1);
    ATTEMPT.set(new Attempt(before.number + 1, txn));
    try {
      if (!Repetition.run(statement, txn.tableId())) throw lost;
    } finally {
      ATTEMPT.set(before);
    }
  }
}
