package io.laketx.spark.write;

import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Refusals;
import io.laketx.v1.CommitTransactionResponse;
import io.laketx.v1.Committed;
import io.laketx.v1.SessionReply;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * How writes ended, for callers that ask: Spark returns nothing from a write. A write with the option `result` leaves its
 * outcome under that id, which its caller makes up; it stays until it is taken, or until many newer ones came.
 */
public final class WriteResults {
  private static final int KEPT_MAX = 10_000;
  private static final Map<String, WriteResult> KEPT =
      Collections.synchronizedMap(
          new LinkedHashMap<>() {
            private static final long serialVersionUID = 1;

            @Override
            protected boolean removeEldestEntry(Map.Entry<String, WriteResult> eldest) {
              return size() > KEPT_MAX;
            }
          });

  private WriteResults() {}

  /** The outcome; null where the write left none. It is given once. */
  public static WriteResult take(String id) {
    return KEPT.remove(id);
  }

  static void committed(String id, String txnId, int attempts, long rows, Committed committed) {
    CommitTransactionResponse answer = CommitTransactionResponse.newBuilder().setCommitted(committed).build();
    SessionReply reply = SessionReply.newBuilder().setCommit(answer).build();
    keep(id, WriteResult.ended(txnId, rows, attempts, reply.toByteArray()));
  }

  /** Nobody knows whether the transaction has committed. */
  static void unknown(String id, String txnId) {
    keep(id, WriteResult.unknown(txnId));
  }

  static void staged(String id, WriteResult staged) {
    keep(id, staged);
  }

  /** What is known of the write already stays. */
  static void refused(String id, LakeException refusal) {
    if (id.isEmpty()) return;
    SessionReply.Builder answer = SessionReply.newBuilder();
    if (refusal instanceof LostRaceException lost) {
      answer.setCommit(CommitTransactionResponse.newBuilder().setConflict(lost.conflict()));
    } else {
      answer.setError(Refusals.status(refusal));
    }
    KEPT.putIfAbsent(id, WriteResult.ended("", 0, Reruns.attempt(), answer.build().toByteArray()));
  }

  private static void keep(String id, WriteResult result) {
    if (!id.isEmpty()) KEPT.put(id, result);
  }
}
