package io.laketx.spark.write;

import io.laketx.spark.read.LakeScan;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.RefusalKind;
import io.laketx.v1.Change;
import io.laketx.v1.DataFile;
import io.laketx.v1.DeleteSet;
import io.laketx.v1.Operation;
import io.laketx.v1.Predicate;
import io.laketx.v1.Read;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * What a statement read of the table that it changes: the filters that Spark pushed down to its scans. What the service
 * can't take as a condition is declared as a read of everything.
 */
final class StatementReads {
  private static final Predicate ALL = Predicate.newBuilder().setLiteral(true).build();

  private final Snapshot snapshot;
  private final List<LakeScan> scans;
  private final boolean changesAll;
  private boolean readsAll;

  /** `changesAll`: whether it changes all rows that its filters find. */
  StatementReads(Snapshot snapshot, List<LakeScan> scans, boolean changesAll) {
    this.snapshot = snapshot;
    this.scans = scans;
    this.changesAll = changesAll;
  }

  private Set<Read> declared() {
    Set<Read> found = new LinkedHashSet<>();
    for (LakeScan scan : scans) {
      Predicate condition = readsAll ? null : scan.condition();
      found.add(Read.newBuilder().setPredicate(condition == null ? ALL : condition).setChangesAll(changesAll).build());
    }
    return found;
  }

  WriteTransaction begin(Operation operation, ConflictPolicy policy) {
    long schema = snapshot.meta().getSchemaVersion();
    try {
      return WriteTransaction.begin(snapshot, new WriteTransaction.Beginning(operation, schema, declared(), policy));
    } catch (LakeException error) {
      if (readsAll || error.kind() != RefusalKind.INVALID) throw error;
      readsAll = true;
      return begin(operation, policy);
    }
  }

  /** `lookedAt`: what was read besides. */
  void commit(
      WriteTransaction txn, List<DataFile> files, List<DeleteSet> sets, Change.Builder change, List<Read> lookedAt) {
    try {
      txn.commit(files, sets, change.addAllReads(lookedAt).addAllReads(declared()));
    } catch (LakeException error) {
      if (readsAll || !error.reason().equals("PREDICATE_TOO_COSTLY")) throw error;
      readsAll = true;
      txn.commit(files, sets, change.clearReads().addAllReads(lookedAt).addAllReads(declared()));
    }
  }
}
