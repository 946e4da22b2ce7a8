package io.laketx.spark.write;

import io.laketx.spark.service.LakeException;

/** Statements that make a table of a query, and find at their end that another one has made a table of that name. */
public final class TakenNames {
  private static final String REASON = "TABLE_EXISTS";

  private TakenNames() {}

  /** Whether the table that is there stays, and the statement that runs ends well without one of its own. */
  public static boolean stay(LakeException refusal) {
    return refusal.reason().equals(REASON) && SparkPlans.isForNewTableAlone();
  }

  /** Ends the statement of a transaction as if it had come after the other one; throws what it lost by where that fails too. */
  static void settle(WriteTransaction txn, LakeException lost) {
    if (stay(lost)) txn.abort();
    else if (!lost.reason().equals(REASON)) throw lost;
    else Reruns.run(txn, SparkPlans.replacement(), lost);
  }
}
