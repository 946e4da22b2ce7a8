package io.laketx.spark.read;

import io.laketx.v1.Predicate;
import io.laketx.v1.Read;

/** A read of a table in a plan of Spark, for whoever declares it. */
public interface TableRead {
  Predicate ALL = Predicate.newBuilder().setLiteral(true).build();

  Snapshot snapshot();

  /** What was asked of the rows; null: everything is read. */
  Predicate condition();

  /** As it is declared. `changesAll`: all rows that it finds are changed, and it serves nothing else. */
  default Read declared(boolean changesAll) {
    Predicate condition = condition();
    return Read.newBuilder().setPredicate(condition == null ? ALL : condition).setChangesAll(changesAll).build();
  }

  /** A read of everything. */
  static Read ofAll(boolean changesAll) {
    return Read.newBuilder().setPredicate(ALL).setChangesAll(changesAll).build();
  }
}
