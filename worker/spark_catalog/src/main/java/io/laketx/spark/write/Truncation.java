package io.laketx.spark.write;

import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Change;
import io.laketx.v1.Operation;
import io.laketx.v1.Partition;
import io.laketx.v1.PartitionList;
import io.laketx.v1.Read;
import io.laketx.v1.Scope;
import java.util.List;

/** TRUNCATE TABLE, DROP PARTITION, and a DELETE of everything or of whole partitions: no row is looked at. */
public final class Truncation {
  private Truncation() {}

  public static void run(Snapshot snapshot, WriteOptions options) {
    Change.Builder change = Change.newBuilder().setScope(Scope.newBuilder().setAll(true));
    commit(snapshot, Operation.OPERATION_TRUNCATE, List.of(), change, options);
  }

  /** Of partitions by name, whether they are there or not. */
  public static void run(Snapshot snapshot, List<Partition> partitions) {
    PartitionList list = PartitionList.newBuilder().addAllPartitions(partitions).build();
    if (partitions.isEmpty()) return;
    Change.Builder change = Change.newBuilder().setScope(Scope.newBuilder().setNamed(list));
    commit(snapshot, Operation.OPERATION_TRUNCATE, List.of(), change, WriteOptions.ofStatement());
  }

  /** Of the partitions that a condition means. Where there are none it is a DELETE of no row, for those who wait for one. */
  public static void run(Snapshot snapshot, PartitionCondition condition, WriteOptions options) {
    if (condition.isEverything()) {
      run(snapshot, options);
      return;
    }
    List<Partition> partitions = condition.partitions(snapshot);
    boolean areNone = partitions.isEmpty();
    if (areNone && !options.isAwaited()) return;
    Change.Builder change = Change.newBuilder();
    if (!areNone) condition.declare(change, partitions);
    Operation operation = areNone ? Operation.OPERATION_DELETE : Operation.OPERATION_TRUNCATE;
    commit(snapshot, operation, condition.reads(), change, options);
  }

  /** `reads`: what it depends on in the table which partitions go. */
  private static void commit(
      Snapshot snapshot, Operation operation, List<Read> reads, Change.Builder change, WriteOptions options) {
    options.noting(() -> commitOnce(snapshot, operation, reads, change, options));
  }

  private static void commitOnce(
      Snapshot snapshot, Operation operation, List<Read> reads, Change.Builder change, WriteOptions options) {
    long schema = snapshot.meta().getSchemaVersion();
    ConflictPolicy policy = options.policy(snapshot.meta(), false);
    TransactionBegin how =
        new TransactionBegin(operation, schema, snapshot.version(), reads, List.of(), policy, options, false);
    WriteTransaction txn = WriteTransaction.begin(snapshot, how, false);
    change.addAllReads(reads);
    try {
      commit(txn, change);
    } catch (RuntimeException error) {
      txn.abort();
      throw error;
    }
  }

  private static void commit(WriteTransaction txn, Change.Builder change) {
    try {
      txn.commit(List.of(), List.of(), change, List.of());
    } catch (LakeException lost) {
      Reruns.run(txn, lost);
    }
  }
}
