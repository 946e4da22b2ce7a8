package io.laketx.spark.write;

import io.laketx.v1.BeginTransactionRequest;
import io.laketx.v1.CommitTransactionRequest;
import io.laketx.v1.RegisterFilesRequest;

/**
 * How a write ended. `answer` is a SessionReply of the wire, the commit's or a refusal; empty: nobody knows whether it
 * committed. Of a write that only staged its files it has the requests that would commit them instead.
 */
public record WriteResult(
    String txnId, long rows, int attempts, byte[] answer, byte[] begin, byte[] files, byte[] commit) {
  private static final byte[] NONE = {};

  static WriteResult ended(String txnId, long rows, int attempts, byte[] answer) {
    return new WriteResult(txnId, rows, attempts, answer, NONE, NONE, NONE);
  }

  static WriteResult unknown(String txnId) {
    return ended(txnId, 0, 1, NONE);
  }

  static WriteResult staged(
      String txnId, long rows, BeginTransactionRequest begin, RegisterFilesRequest files, CommitTransactionRequest commit) {
    return new WriteResult(txnId, rows, 1, NONE, begin.toByteArray(), files.toByteArray(), commit.toByteArray());
  }
}
