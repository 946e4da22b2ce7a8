package io.laketx.spark.read;

import io.laketx.spark.service.Service;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Partition;
import io.laketx.v1.PlanScanRequest;
import io.laketx.v1.Predicate;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/** The entries that a read of a snapshot needs. The service leaves out what the condition rules out. */
public final class Plan {
  private Plan() {}

  /**
   * `condition` names the snapshot's columns; null: all entries. `bounds` learn the files' statistics, which the entries
   * then lack; null: nobody asks for them.
   */
  static List<LiveEntry> of(Snapshot snapshot, Predicate condition, ColumnBounds bounds) {
    snapshot.hold();
    PlanScanRequest.Builder request =
        PlanScanRequest.newBuilder()
            .setTableId(snapshot.tableId())
            .setVersion(snapshot.version())
            .setWithoutStats(bounds == null);
    if (condition != null) request.setPredicate(condition);
    List<LiveEntry> found = of(snapshot.service(), request.build());
    if (bounds != null) found.replaceAll(one -> told(one, bounds));
    return found;
  }

  private static LiveEntry told(LiveEntry one, ColumnBounds bounds) {
    if (!one.hasFile()) return one;
    bounds.add(one.getFile());
    return one.toBuilder().setFile(one.getFile().toBuilder().clearStats()).build();
  }

  /** The entries of some partitions at a version of the snapshot's table, with inlined rows; of all where none is named. */
  public static List<LiveEntry> of(Snapshot snapshot, long version, Collection<Partition> partitions) {
    PlanScanRequest.Builder request =
        PlanScanRequest.newBuilder()
            .setTableId(snapshot.tableId())
            .setVersion(version)
            .addAllPartitions(partitions)
            .setWithoutStats(true);
    return Inlined.filled(snapshot, of(snapshot.service(), request.build()));
  }

  private static List<LiveEntry> of(Service service, PlanScanRequest asked) {
    return service.ask(
        stubs -> {
          List<LiveEntry> found = new ArrayList<>();
          stubs.reads().planScan(asked).forEachRemaining(part -> found.addAll(part.getEntriesList()));
          return found;
        });
  }
}
