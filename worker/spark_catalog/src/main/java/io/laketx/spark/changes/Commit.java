package io.laketx.spark.changes;

import io.laketx.spark.read.Inlined;
import io.laketx.spark.read.Snapshot;
import io.laketx.v1.ChangesMode;
import io.laketx.v1.DataFile;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Partition;
import io.laketx.v1.PlanChangesRequest;
import io.laketx.v1.PlanChangesResponse;
import io.laketx.v1.Predicate;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A commit that changed data: the files and delete sets that it added, and the buckets that it reset. A commit resets a
 * bucket where it removed something or brought something back; there the rows before and after it are compared.
 */
final class Commit {
  private final long version;
  private final long timeUs;
  private final String operation;
  private final List<LiveEntry> files = new ArrayList<>();
  private final List<LiveEntry> sets = new ArrayList<>();
  private final Map<Bucket, Partition> resets = new LinkedHashMap<>();

  private Commit(PlanChangesResponse first) {
    version = first.getVersion().getVersion();
    timeUs = first.getVersion().getCommitTimeUs();
    operation = first.getVersion().getOperation().name().replace("OPERATION_", "").replace('_', ' ');
  }

  /** Those in (begin, end], oldest first; `condition` names the columns of the table at `end`, and may be null. */
  static List<Commit> list(Snapshot table, long begin, long end, Predicate condition) {
    PlanChangesRequest.Builder request =
        PlanChangesRequest.newBuilder()
            .setTableId(table.tableId())
            .setFromVersion(begin)
            .setToVersion(end)
            .setMode(ChangesMode.CHANGES_MODE_LOG);
    if (condition != null) request.setPredicate(condition);
    PlanChangesRequest asked = request.build();
    List<Commit> commits =
        table
            .service()
            .ask(
                stubs -> {
                  Map<Long, Commit> found = new LinkedHashMap<>();
                  stubs.reads().planChanges(asked).forEachRemaining(part -> add(part, found));
                  found.values().forEach(Commit::close);
                  return new ArrayList<>(found.values());
                });
    for (Commit one : commits) one.fill(table);
    return commits;
  }

  private static void add(PlanChangesResponse part, Map<Long, Commit> found) {
    if (!part.hasVersion()) return;
    Commit commit = found.computeIfAbsent(part.getVersion().getVersion(), none -> new Commit(part));
    for (LiveEntry one : part.getAddedList()) {
      if (one.getDataVersion() != commit.version) commit.reset(one); // a restore brought it back
      else if (one.hasFile()) commit.files.add(one);
      else commit.sets.add(one);
    }
    part.getRemovedList().forEach(commit::reset);
  }

  private void reset(LiveEntry one) {
    resets.put(Bucket.of(one), Bucket.partitionOf(one));
  }

  /** What is in buckets that are reset is found by the comparison. Files come in one order, whenever they are listed. */
  private void close() {
    files.sort(Comparator.comparing(one -> one.getFile().getPath()));
    if (resets.isEmpty()) return;
    files.removeIf(one -> resets.containsKey(Bucket.of(one)));
    sets.removeIf(one -> resets.containsKey(Bucket.of(one)));
  }

  private void fill(Snapshot table) {
    List<LiveEntry> filled = Inlined.filled(table, files);
    if (filled == files) return;
    files.clear();
    files.addAll(filled);
  }

  long version() {
    return version;
  }

  long timeUs() {
    return timeUs;
  }

  String operation() {
    return operation;
  }

  List<LiveEntry> files() {
    return files;
  }

  List<LiveEntry> sets() {
    return sets;
  }

  Map<Bucket, Partition> resets() {
    return resets;
  }

  /** Whether it did nothing but add rows: to a primary-key table, in place of older images of their keys. */
  boolean onlyAdds() {
    return resets.isEmpty() && sets.isEmpty() && files.stream().allMatch(one -> one.getFile().getTombstones() == 0);
  }

  long rows() {
    long sum = 0;
    for (LiveEntry one : files) sum += one.getFile().getRows();
    for (LiveEntry one : sets) sum += one.getDeleteSet().getRows();
    return sum;
  }

  long bytes() {
    return files.stream().map(LiveEntry::getFile).mapToLong(DataFile::getBytes).sum();
  }
}
