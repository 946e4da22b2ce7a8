package io.laketx.spark.read;

import io.laketx.v1.LiveEntry;
import io.laketx.v1.PlanScanRequest;
import io.laketx.v1.Predicate;
import java.util.ArrayList;
import java.util.List;

/** The entries that a read of a snapshot needs. The service leaves out what the condition rules out. */
final class Plan {
  private Plan() {}

  /** `condition` names the snapshot's columns; null: all entries. */
  static List<LiveEntry> of(Snapshot snapshot, Predicate condition) {
    PlanScanRequest.Builder request =
        PlanScanRequest.newBuilder()
            .setTableId(snapshot.tableId())
            .setVersion(snapshot.version())
            .setWithoutStats(true);
    if (condition != null) request.setPredicate(condition);
    PlanScanRequest asked = request.build();
    return snapshot
        .service()
        .ask(
            stubs -> {
              List<LiveEntry> found = new ArrayList<>();
              stubs.reads().planScan(asked).forEachRemaining(part -> found.addAll(part.getEntriesList()));
              return found;
            });
  }
}
