package io.laketx.spark.changes;

import io.laketx.spark.changes.BucketChanges.Step;
import io.laketx.spark.read.ImageFold;
import io.laketx.spark.read.LakePartition;
import io.laketx.spark.read.MetadataColumns;
import io.laketx.spark.read.Plan;
import io.laketx.spark.read.PlannedScan;
import io.laketx.spark.read.RowIds;
import io.laketx.spark.read.Shapes;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.Tasks;
import io.laketx.spark.read.Unit;
import io.laketx.v1.DeleteSet;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Partition;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The work of an increment. Rows of an append table that nothing in the range touches once more are a plain scan of their
 * files; all other changes are found bucket by bucket, each by one task.
 */
final class PlannedChanges {
  private static final Filter[] NO_FILTERS = {};

  private final Snapshot table;
  private final StructType columns;
  private final StructType required;
  private final ChangesMode mode;
  private final Filter[] filters;
  private final long begin;
  private final List<Commit> commits;
  private final Shapes newRows;
  private final Shapes wholeRows;
  private final Shapes keys;
  private final List<Unit> newFiles = new ArrayList<>();
  private final List<BucketChanges> buckets = new ArrayList<>();

  /**
   * What (begin, …] changed, by its commits, under the schema of the table.
   *
   * @param columns the table's
   * @param required of these and of those that increments have, which are given
   */
  PlannedChanges(
      Snapshot table,
      StructType columns,
      StructType required,
      Filter[] filters,
      ChangesMode mode,
      long begin,
      List<Commit> commits) {
    this.table = table;
    this.columns = columns;
    this.required = required;
    this.filters = filters;
    this.mode = mode;
    this.begin = begin;
    this.commits = commits;
    newRows = new Shapes(table, required, filters, ChangeColumns.ALL);
    StructField beside =
        table.isKeyed()
            ? new StructField(Shapes.OP, DataTypes.IntegerType, true, Metadata.empty())
            : new StructField(MetadataColumns.ROW_ID, DataTypes.LongType, true, Metadata.empty());
    StructType whole = columns.add(beside);
    if (table.isPartial()) whole = whole.add(new StructField(Shapes.SET, DataTypes.BinaryType, true, Metadata.empty()));
    wholeRows = new Shapes(table, whole, NO_FILTERS, Set.of());
    StructField[] ofKey = table.meta().getPrimaryKeyList().stream().map(columns::apply).toArray(StructField[]::new);
    keys = new Shapes(table, new StructType(ofKey), NO_FILTERS, Set.of());
    if (table.isKeyed()) planKeyed();
    else planAppended();
  }

  /** A bucket that changed, with all that changed it. */
  private static final class Touched {
    final Partition partition;
    final Map<Long, List<LiveEntry>> files = new HashMap<>();
    final Map<Long, RowIds> gone = new HashMap<>();
    final List<LiveEntry> before = new ArrayList<>();
    final Map<Long, List<LiveEntry>> states = new HashMap<>();
    final RowIds hidden = new RowIds();
    boolean isWhole;

    Touched(Partition partition) {
      this.partition = partition;
    }
  }

  private void planKeyed() {
    Map<Bucket, Touched> touched = touchedByResets();
    for (Commit commit : commits) {
      for (LiveEntry one : commit.files()) {
        Touched bucket = at(touched, one);
        bucket.files.computeIfAbsent(commit.version(), none -> new ArrayList<>()).add(one);
      }
    }
    lookBefore(touched);
    touched.values().forEach(this::addBucket);
  }

  private void planAppended() {
    Map<Bucket, Touched> touched = touchedByResets();
    for (Commit commit : commits) {
      for (LiveEntry one : commit.sets()) {
        Touched partition = at(touched, one);
        DeleteSet set = one.getDeleteSet();
        RowIds ids = PlannedScan.idsOf(table, set);
        partition.gone.computeIfAbsent(commit.version(), none -> new RowIds()).addAll(ids);
        partition.hidden.addAll(ids);
      }
    }
    for (Commit commit : commits) {
      Map<String, Object> said = ChangeColumns.inserted(commit.version(), commit.timeUs());
      for (LiveEntry one : commit.files()) {
        Touched partition = touched.get(Bucket.of(one));
        boolean mayChange =
            partition != null && (partition.isWhole || isNear(partition.hidden, one));
        if (mayChange) partition.files.computeIfAbsent(commit.version(), none -> new ArrayList<>()).add(one);
        else newFiles.add(PlannedScan.written(table, newRows, one, said));
      }
    }
    lookBefore(touched);
    touched.values().forEach(this::addBucket);
  }

  private static boolean isNear(RowIds hidden, LiveEntry file) {
    return !PlannedScan.within(hidden, file.getFile()).isEmpty();
  }

  private Map<Bucket, Touched> touchedByResets() {
    Map<Bucket, Touched> found = new LinkedHashMap<>();
    for (Commit commit : commits) {
      if (commit.resets().isEmpty()) continue;
      commit
          .resets()
          .forEach((bucket, partition) -> found.computeIfAbsent(bucket, none -> new Touched(partition)).isWhole = true);
      for (LiveEntry one : Plan.of(table, commit.version(), commit.resets().values())) {
        Bucket bucket = Bucket.of(one);
        if (!commit.resets().containsKey(bucket)) continue;
        found.get(bucket).states.computeIfAbsent(commit.version(), none -> new ArrayList<>()).add(one);
      }
      for (Bucket one : commit.resets().keySet()) {
        found.get(one).states.computeIfAbsent(commit.version(), none -> new ArrayList<>());
      }
    }
    return found;
  }

  private static Touched at(Map<Bucket, Touched> touched, LiveEntry one) {
    return touched.computeIfAbsent(Bucket.of(one), none -> new Touched(Bucket.partitionOf(one)));
  }

  /** What the buckets have before the range: all of it, or the files of rows that the range hides. */
  private void lookBefore(Map<Bucket, Touched> touched) {
    if (touched.isEmpty()) return;
    List<Partition> partitions = touched.values().stream().map(one -> one.partition).distinct().toList();
    for (LiveEntry one : Plan.of(table, begin, partitions)) {
      Touched bucket = touched.get(Bucket.of(one));
      if (bucket == null) continue;
      boolean matters = bucket.isWhole || table.isKeyed() || one.hasDeleteSet() || isNear(bucket.hidden, one);
      if (matters) bucket.before.add(one);
    }
  }

  private void addBucket(Touched bucket) {
    List<Step> steps = new ArrayList<>();
    List<Unit> keyFiles = new ArrayList<>();
    for (Commit commit : commits) {
      long version = commit.version();
      List<LiveEntry> state = bucket.states.get(version);
      RowIds gone = bucket.gone.get(version);
      List<LiveEntry> files = bucket.files.getOrDefault(version, List.of());
      if (state != null) {
        steps.add(new Step(version, commit.timeUs(), true, shown(state), null));
      } else if (gone != null || !files.isEmpty()) {
        List<Unit> rows = new ArrayList<>();
        for (LiveEntry one : files) {
          rows.add(PlannedScan.written(table, wholeRows, one, Map.of()));
          if (table.isKeyed() && !bucket.isWhole) keyFiles.add(PlannedScan.written(table, keys, one, Map.of()));
        }
        steps.add(new Step(version, commit.timeUs(), false, rows, gone == null ? null : gone.bytes()));
      }
    }
    byte[] wanted = table.isKeyed() || bucket.isWhole ? null : bucket.hidden.bytes();
    buckets.add(new BucketChanges(shown(bucket.before), wanted, bucket.isWhole, keyFiles, steps));
  }

  private List<Unit> shown(List<LiveEntry> entries) {
    return new PlannedScan(table, wholeRows, entries, Map.of())
        .units().stream().map(PlannedScan.Placed::unit).toList();
  }

  InputPartition[] partitions() {
    List<InputPartition> found = new ArrayList<>();
    for (LakePartition one : Tasks.of(newFiles)) {
      found.add(new ChangesPartition.NewRows(newRows.all(), one, !buckets.isEmpty()));
    }
    int[] key = table.meta().getPrimaryKeyList().stream().mapToInt(columns::fieldIndex).toArray();
    int[] ids = table.isPartial() ? ImageFold.idsOf(table.meta(), columns) : null;
    int[] given = new int[required.length()];
    for (int at = 0; at < given.length; at++) given[at] = placeOf(required.apply(at).name());
    for (BucketChanges one : buckets) {
      found.add(
          new ChangesPartition.OfBucket(wholeRows.all(), keys.all(), one, columns, ids, key, given, mode));
    }
    return found.toArray(InputPartition[]::new);
  }

  private int placeOf(String name) {
    return switch (name) {
      case ChangeColumns.TYPE -> ChangesPartition.OfBucket.TYPE;
      case ChangeColumns.VERSION -> ChangesPartition.OfBucket.VERSION;
      case ChangeColumns.TIME, ChangeColumns.TIMESTAMP -> ChangesPartition.OfBucket.TIME;
      case ChangeColumns.SET -> table.isPartial() ? ChangesPartition.OfBucket.SET : columns.fieldIndex(name);
      default -> columns.fieldIndex(name);
    };
  }
}
