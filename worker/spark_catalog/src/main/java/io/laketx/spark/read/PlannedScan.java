package io.laketx.spark.read;

import io.laketx.spark.read.Shapes.Beside;
import io.laketx.v1.DataFile;
import io.laketx.v1.DeleteSet;
import io.laketx.v1.FileKind;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Partition;
import io.laketx.v1.Value;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.roaringbitmap.RoaringBitmap;

/**
 * A plan's entries as work for tasks: which files are read, what of each is hidden, which must be read together.
 *
 * <p>An id in a delete set hides its row, and a key hides older images of itself, in files of the same partition and
 * bucket whose data version is lower.
 */
public final class PlannedScan {
  private static final long LAST_ROW_ID = (1L << 62) - 1;
  private static final Set<Beside> NOTHING = EnumSet.noneOf(Beside.class);

  private final Snapshot snapshot;
  private final Shapes shapes;
  private final Map<String, Object> said;
  private final List<Placed> units = new ArrayList<>();
  private final Map<String, byte[]> contents = new HashMap<>();

  PlannedScan(Snapshot snapshot, StructType required, Filter[] filters, List<LiveEntry> entries) {
    this(snapshot, new Shapes(snapshot, required, filters), entries, Map.of());
  }

  /** `said`: values of the columns that shapes are told. */
  public PlannedScan(Snapshot snapshot, Shapes shapes, List<LiveEntry> entries, Map<String, Object> said) {
    this.snapshot = snapshot;
    this.shapes = shapes;
    this.said = said;
    List<LiveEntry> filled = Inlined.filled(snapshot, entries);
    if (snapshot.isKeyed()) addBuckets(filled);
    else addAppended(filled);
  }

  /** A unit, the partition that all its rows are of, the path of its newest file, and how many rows its files have. */
  public record Placed(Unit unit, Partition partition, String path, long rows) {}

  public List<Placed> units() {
    return units;
  }

  private void add(LiveEntry one, Unit unit) {
    add(one, unit, one.getFile().getRows());
  }

  private void add(LiveEntry one, Unit unit, long rows) {
    units.add(new Placed(unit, one.getFile().getPartition(), one.getFile().getPath(), rows));
  }

  Shape[] shapes() {
    return shapes.all();
  }

  // -- append tables

  private void addAppended(List<LiveEntry> entries) {
    Map<Map<String, Value>, List<LiveEntry>> sets = new HashMap<>();
    Map<Map<String, Value>, List<LiveEntry>> hiding = new LinkedHashMap<>();
    for (LiveEntry one : entries) {
      if (one.hasDeleteSet()) {
        sets.computeIfAbsent(PartitionKey.of(one.getDeleteSet().getPartition()), key -> new ArrayList<>()).add(one);
      }
    }
    for (LiveEntry one : entries) {
      if (!one.hasFile()) continue;
      Map<String, Value> key = sets.isEmpty() ? null : PartitionKey.of(one.getFile().getPartition());
      if (key != null && sets.containsKey(key)) hiding.computeIfAbsent(key, none -> new ArrayList<>()).add(one);
      else add(one, clean(one, NOTHING));
    }
    hiding.forEach((key, files) -> hide(files, sets.get(key)));
  }

  /** Newest first: more and more delete sets take part. */
  private void hide(List<LiveEntry> files, List<LiveEntry> sets) {
    files.sort(Comparator.comparingLong(LiveEntry::getDataVersion).reversed());
    sets.sort(Comparator.comparingLong(LiveEntry::getDataVersion).reversed());
    Deque<LiveEntry> waiting = new ArrayDeque<>(sets);
    RowIds hidden = new RowIds();
    for (LiveEntry one : files) {
      while (!waiting.isEmpty() && waiting.peek().getDataVersion() > one.getDataVersion()) {
        hidden.addAll(idsOf(waiting.poll().getDeleteSet()));
      }
      FileTask task = one.getFile().getCarriesRowIds() ? withoutIds(one, hidden) : withoutPositions(one, hidden);
      if (task != null) add(one, task);
    }
  }

  private FileTask withoutPositions(LiveEntry one, RowIds hidden) {
    DataFile file = one.getFile();
    RoaringBitmap positions = hidden.positions(file.getFirstRowId(), file.getRows());
    if (positions.isEmpty()) return clean(one, NOTHING);
    long shown = file.getRows() - positions.getLongCardinality();
    if (shown <= 0) return null;
    positions.runOptimize();
    byte[] bytes = new byte[positions.serializedSizeInBytes()];
    positions.serialize(ByteBuffer.wrap(bytes));
    return task(one, EnumSet.of(Beside.POSITION), bytes, null, shown);
  }

  private FileTask withoutIds(LiveEntry one, RowIds hidden) {
    RowIds found = within(hidden, one.getFile());
    if (found.isEmpty()) return clean(one, NOTHING);
    return task(one, EnumSet.of(Beside.POSITION, Beside.OWN_IDS), null, found.bytes(), 0);
  }

  /** Those of the ids that rows of the file may have. */
  public static RowIds within(RowIds ids, DataFile file) {
    long first = file.getFirstRowId();
    long last = first + Math.max(file.getRows(), 1) - 1;
    if (!file.getCarriesRowIds()) return ids.within(first, last);
    boolean areKnown = file.hasRowIdMin() && file.hasRowIdMax();
    long lowest = areKnown ? Math.min(first, file.getRowIdMin()) : 0;
    long highest = areKnown ? Math.max(last, file.getRowIdMax()) : Math.max(last, LAST_ROW_ID);
    return ids.within(lowest, highest);
  }

  private RowIds idsOf(DeleteSet set) {
    return idsOf(snapshot, set);
  }

  public static RowIds idsOf(Snapshot snapshot, DeleteSet set) {
    if (!set.getBitmap().isEmpty()) return RowIds.read(set.getBitmap().toByteArray());
    String path = snapshot.pathOf(set.getPath());
    try {
      return RowIds.read(SparkInternals.readFile(path));
    } catch (IOException error) {
      throw new UncheckedIOException("the delete set " + path + " can't be read: " + error.getMessage(), error);
    }
  }

  // -- primary-key tables

  private record Bucket(Map<String, Value> partition, int number) {}

  private void addBuckets(List<LiveEntry> entries) {
    Map<Bucket, List<LiveEntry>> buckets = new LinkedHashMap<>();
    for (LiveEntry one : entries) {
      if (!one.hasFile()) continue;
      Bucket bucket = new Bucket(PartitionKey.of(one.getFile().getPartition()), one.getFile().getBucket());
      buckets.computeIfAbsent(bucket, none -> new ArrayList<>()).add(one);
    }
    buckets.values().forEach(this::addBucket);
  }

  private void addBucket(List<LiveEntry> files) {
    long lowest = files.stream().mapToLong(LiveEntry::getDataVersion).min().orElseThrow();
    if (files.stream().allMatch(one -> one.getDataVersion() == lowest)) {
      // within one version no key comes twice
      for (LiveEntry one : files) {
        boolean isDelta = one.getFile().getKind() == FileKind.FILE_KIND_DELTA;
        add(one, isDelta ? task(one, EnumSet.of(Beside.OP), null, null, 0) : clean(one, NOTHING));
      }
      return;
    }
    files.sort(Comparator.comparingLong(LiveEntry::getDataVersion).reversed());
    long rows = files.stream().mapToLong(one -> one.getFile().getRows()).sum();
    if (files.stream().anyMatch(one -> one.getFile().getSetColumnsCount() > 0)) {
      add(files.get(0), folded(files, lowest), rows);
      return;
    }
    List<FileTask> newer = new ArrayList<>();
    List<FileTask> newerKeys = new ArrayList<>();
    List<FileTask> lowestFiles = new ArrayList<>();
    List<FileTask> lowestKnown = new ArrayList<>();
    for (LiveEntry one : files) {
      if (one.getDataVersion() == lowest) {
        lowestFiles.add(task(one, EnumSet.of(Beside.KEYS), null, null, 0));
        lowestKnown.add(task(one, EnumSet.of(Beside.POSITION), null, null, 0));
      } else {
        newer.add(task(one, EnumSet.of(Beside.POSITION), null, null, 0));
        newerKeys.add(task(one, EnumSet.of(Beside.KEYS_ALONE), null, null, 0));
      }
    }
    KeptVectors kept = KeptVectors.of(snapshot, files, lowest);
    add(files.get(0), new BucketTask(newer, newerKeys, lowestFiles, lowestKnown, kept), rows);
  }

  /** Conditions are left to Spark: they are about rows, and the row that matches may be in no file. */
  private FoldTask folded(List<LiveEntry> newestFirst, long lowest) {
    Deque<FileTask> newer = new ArrayDeque<>();
    List<FileTask> lowestFiles = new ArrayList<>();
    for (LiveEntry one : newestFirst) {
      FileTask file = task(one, EnumSet.of(Beside.FOLD), null, null, 0);
      if (one.getDataVersion() == lowest) lowestFiles.add(file);
      else newer.addFirst(file);
    }
    StructType columns = shapes.required();
    return new FoldTask(List.copyOf(newer), lowestFiles, columns, ImageFold.idsOf(snapshot.meta(), columns));
  }

  // -- one file

  /** A file as it was written: nothing hides its rows. */
  public static FileTask written(Snapshot snapshot, Shapes shapes, LiveEntry one, Map<String, Object> said) {
    return new PlannedScan(snapshot, shapes, List.of(), said).clean(one, NOTHING);
  }

  private FileTask clean(LiveEntry one, Set<Beside> beside) {
    return task(one, beside, null, null, one.getFile().getRows());
  }

  /** The same bytes for each task of a file: a bucket's tasks travel together, and then they are sent once. */
  private byte[] contentOf(DataFile file) {
    return contents.computeIfAbsent(file.getPath(), path -> file.getContent().toByteArray());
  }

  private FileTask task(LiveEntry one, Set<Beside> beside, byte[] positions, byte[] ids, long shownMin) {
    DataFile file = one.getFile();
    return new FileTask(
        shapes.of(file, beside),
        snapshot.pathOf(file.getPath()),
        0,
        FileTask.ALL,
        file.getBytes(),
        file.getFirstRowId(),
        positions,
        ids,
        shapes.valuesOf(file, one.getDataVersion(), said),
        shownMin,
        file.getInlined() ? contentOf(file) : null);
  }
}
