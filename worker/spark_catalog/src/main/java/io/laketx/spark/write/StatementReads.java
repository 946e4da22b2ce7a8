package io.laketx.spark.write;

import io.laketx.spark.read.LakeScan;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.TableRead;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Change;
import io.laketx.v1.DataFile;
import io.laketx.v1.DeleteSet;
import io.laketx.v1.ErrorKind;
import io.laketx.v1.ListVersionsRequest;
import io.laketx.v1.Operation;
import io.laketx.v1.Read;
import io.laketx.v1.Table;
import io.laketx.v1.TableCommit;
import io.laketx.v1.TableIntent;
import io.laketx.v1.VersionFilter;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Supplier;

/**
 * What a statement read of the table that it changes, wherever in its plan: the conditions that Spark pushed down to its
 * scans. What the service can't take as a condition is declared as a read of everything.
 */
final class StatementReads {
  private final Snapshot snapshot;
  private List<TableRead> changed; // what finds the rows that are changed
  private final List<TableRead> besides = new ArrayList<>(); // all other reads of the table
  private final List<Read> partitions; // what finds the partitions that are overwritten
  private final List<TableRead> others; // reads of other tables, where they are declared
  private final List<TableIntent> given; // what the caller declares for the rows that it gives
  private final boolean isUnseen;
  private final boolean changesAll;
  private boolean readsAll;
  private boolean looksKeysUp;
  private List<Integer> used = List.of(); // columns of the rows that are changed; none: any

  private StatementReads(
      Snapshot snapshot,
      Table before,
      List<LakeScan> scans,
      boolean changesAll,
      List<Read> partitions,
      WriteOptions options) {
    this.snapshot = snapshot;
    this.changed = List.copyOf(scans);
    this.changesAll = changesAll;
    this.partitions = partitions;
    given = options.reads();
    List<TableRead> all = SparkPlans.reads();
    isUnseen = all == null;
    boolean isAlone = snapshot.transaction() == null; // else the transaction declares them
    boolean areOthers = !isUnseen && isAlone && OtherReads.areDeclared(before);
    others = areOthers ? OtherReads.among(all, snapshot) : List.of();
    if (isUnseen) return;
    for (TableRead one : all) {
      boolean isTarget = one instanceof LakeScan scan && scan.isOfTarget();
      if (!isTarget && one.snapshot().tableId().equals(snapshot.tableId())) besides.add(one);
    }
  }

  /** Of one that changes the rows that its scans find. `changesAll`: all of them, and the scans serve nothing else. */
  static StatementReads ofRowChange(
      Snapshot snapshot, List<LakeScan> scans, boolean changesAll, WriteOptions options) {
    return new StatementReads(snapshot, snapshot.meta(), scans, changesAll, List.of(), options);
  }

  /**
   * Of one whose rows come in. `condition` tells which partitions are overwritten; null: that is known otherwise. `before` is
   * the table as it is without what the statement may make of it.
   */
  static StatementReads ofRows(
      Snapshot snapshot, PartitionCondition condition, Table before, WriteOptions options) {
    List<Read> partitions = condition == null ? List.of() : condition.reads();
    return new StatementReads(snapshot, before, List.of(), false, partitions, options);
  }

  /** Whether nothing was read that counts. */
  boolean areNone() {
    boolean areGiven = !given.isEmpty();
    return !isUnseen && !areGiven && changed.isEmpty() && besides.isEmpty() && partitions.isEmpty() && others.isEmpty();
  }

  /** The version that it read: the oldest one, where DataFrames that were made earlier are among its sources. */
  long version() {
    long oldest = snapshot.version();
    for (TableRead one : besides) oldest = Math.min(oldest, one.snapshot().version());
    for (TableIntent one : given) {
      if (isOfTable(one)) oldest = Math.min(oldest, one.getReadVersion());
    }
    return oldest < snapshot.version() && !isChangedSince(oldest) ? snapshot.version() : oldest;
  }

  /** Whether rows have: columns that were added and compactions change none. */
  private boolean isChangedSince(long version) {
    VersionFilter filter =
        VersionFilter.newBuilder()
            .setFromVersion(version + 1)
            .setToVersion(snapshot.version())
            .setLogicalOnly(true)
            .build();
    ListVersionsRequest request =
        ListVersionsRequest.newBuilder().setTableId(snapshot.tableId()).setPageSize(1).setFilter(filter).build();
    return snapshot.service().ask(stubs -> stubs.reads().listVersions(request)).getVersionsCount() > 0;
  }

  private Set<Read> declared() {
    Set<Read> found = new LinkedHashSet<>();
    for (TableRead one : changed) {
      Read read = readsAll ? TableRead.ofAll(changesAll) : one.declared(changesAll);
      found.add(read.toBuilder().addAllColumns(used).build());
    }
    for (TableRead one : besides) found.add(readsAll ? TableRead.ofAll(false) : one.declared(false));
    for (Read one : partitions) found.add(readsAll ? TableRead.ofAll(one.getChangesAll()) : one);
    if (isUnseen) found.add(TableRead.ofAll(false));
    for (TableIntent one : given) {
      if (isOfTable(one)) found.addAll(one.getReadsList());
    }
    return found;
  }

  private boolean isOfTable(TableIntent read) {
    return read.getTableId().equals(snapshot.tableId());
  }

  private Collection<OtherReads> elsewhere() {
    List<OtherReads> found = new ArrayList<>(OtherReads.of(others, readsAll));
    for (TableIntent one : given) {
      if (!isOfTable(one)) found.add(OtherReads.of(one));
    }
    return found;
  }

  /** For a table whose key is unique across partitions: the statement knows where the keys that it writes live. */
  void lookKeysUp() {
    looksKeysUp = true;
  }

  /** Of the rows that it changes the statement uses these columns alone. */
  void uses(List<Integer> columns) {
    used = columns;
  }

  /** The statement does the same whatever rows it changes: what finds them counts for nothing. */
  void areOfNoMatter() {
    changed = List.of();
  }

  WriteTransaction begin(Operation operation, long schemaVersion, ConflictPolicy policy, WriteOptions options) {
    return begin(operation, schemaVersion, policy, options, false);
  }

  /** `isNow`: the service hears of it at once. */
  WriteTransaction begin(
      Operation operation, long schemaVersion, ConflictPolicy policy, WriteOptions options, boolean isNow) {
    try {
      TransactionBegin how =
          new TransactionBegin(operation, schemaVersion, version(), declared(), elsewhere(), policy, options, looksKeysUp);
      return WriteTransaction.begin(snapshot, how, isNow);
    } catch (LakeException error) {
      if (readsAll || areNone() || error.kind() != ErrorKind.ERROR_KIND_INVALID) throw error;
      readsAll = true;
      return begin(operation, schemaVersion, policy, options, isNow);
    }
  }

  /** `lookedAt`: what was read besides. */
  TableCommit commit(
      WriteTransaction txn, List<DataFile> files, List<DeleteSet> sets, Change.Builder change, List<Read> lookedAt) {
    return commit(
        () -> {
          Change.Builder mine = change.clearReads().addAllReads(lookedAt).addAllReads(declared());
          return txn.commit(files, sets, mine, elsewhere());
        });
  }

  /** The same for an overwrite that redefines the table. */
  void commitUnder(WriteTransaction txn, Table definition, List<DataFile> files, Change.Builder change) {
    commit(
        () -> {
          Change.Builder mine = change.clearReads().addAllReads(declared());
          return txn.commitUnder(definition, files, mine, elsewhere());
        });
  }

  private TableCommit commit(Supplier<TableCommit> commit) {
    try {
      return commit.get();
    } catch (LakeException error) {
      if (readsAll || areNone() || error.kind() != ErrorKind.ERROR_KIND_INVALID) throw error;
      readsAll = true;
      return commit.get();
    }
  }
}
