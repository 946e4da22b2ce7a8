package io.laketx.spark.read;

import io.laketx.spark.service.Service;
import io.laketx.v1.KeyFiles;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Partition;
import io.laketx.v1.PlanScanRequest;
import io.laketx.v1.PlanScanResponse;
import io.laketx.v1.Predicate;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;

/** The entries that a read of a snapshot needs. The service leaves out what the condition rules out. */
public final class Plan {
  private Plan() {}

  /** What the service answered. `leaseMs` is 0 where nothing was pinned; `table` is null where it wasn't asked for. */
  record Answer(List<LiveEntry> entries, long version, long leaseMs, Table table) {}

  /**
   * `condition` names the snapshot's columns; null: all entries. `bounds` learn the files' statistics, which the entries
   * then lack; null: nobody asks for them. `withRows`: inlined files come with their rows. `keyFiles`: what a key index says
   * of the keys that are read; null: rows of any key are, or it says nothing.
   */
  static List<LiveEntry> of(
      Snapshot snapshot, Predicate condition, ColumnBounds bounds, boolean withRows, KeyFiles keyFiles) {
    PlanScanRequest.Builder request =
        PlanScanRequest.newBuilder()
            .setTableId(snapshot.tableId())
            .setWithoutStats(bounds == null)
            .setWithRows(withRows);
    if (condition != null) request.setPredicate(condition);
    if (keyFiles != null) request.setKeyFiles(keyFiles);
    List<LiveEntry> found = snapshot.plan(request);
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
            .setWithoutStats(true)
            .setWithRows(true);
    return Inlined.filled(snapshot, ask(snapshot.service(), request.build()).entries());
  }

  static Answer ask(Service service, PlanScanRequest asked) {
    return service.ask(
        stubs -> {
          List<LiveEntry> found = new ArrayList<>();
          Iterator<PlanScanResponse> parts = stubs.reads().planScan(asked);
          PlanScanResponse first = parts.next();
          found.addAll(first.getEntriesList());
          parts.forEachRemaining(part -> found.addAll(part.getEntriesList()));
          return new Answer(found, first.getVersion(), first.getLeaseMs(), first.hasTable() ? first.getTable() : null);
        });
  }
}
