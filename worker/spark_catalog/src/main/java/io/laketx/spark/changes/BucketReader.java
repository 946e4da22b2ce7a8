package io.laketx.spark.changes;

import io.laketx.spark.changes.BucketChanges.Step;
import io.laketx.spark.read.ImageFold;
import io.laketx.spark.read.LakePartition;
import io.laketx.spark.read.LakeReader;
import io.laketx.spark.read.RowIds;
import io.laketx.spark.read.Shape;
import io.laketx.spark.read.Unit;
import io.laketx.v1.RowOp;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The changes of one bucket: its rows before the range are kept by their key or id, each commit is held against them, and
 * they become the rows after it. Rows that no commit of the range touches are not kept.
 */
final class BucketReader implements PartitionReader<InternalRow> {

  private final ChangesPartition.OfBucket task;
  private final boolean isKeyed;
  private final StructType columns;
  private final UnsafeProjection toValues;
  private final ImageFold fold; // null: every image is whole
  private final DataType[] keyTypes;
  private final UnsafeProjection toKey;
  private final GenericInternalRow keyParts;
  private final Deque<Step> steps;
  private final Deque<Change> ready = new ArrayDeque<>();
  private final Map<Object, Net> nets = new LinkedHashMap<>();
  private final GenericInternalRow given;
  private RowIds wanted;
  private Map<Object, UnsafeRow> current;
  private Map<Object, UnsafeRow> after;
  private Set<Object> images;
  private Step step;
  private LakeReader open;
  private boolean isDone;

  BucketReader(ChangesPartition.OfBucket task) {
    this.task = task;
    columns = task.columns();
    isKeyed = task.key().length > 0;
    DataType[] types = new DataType[columns.length()];
    for (int at = 0; at < types.length; at++) types[at] = columns.apply(at).dataType();
    toValues = UnsafeProjection.create(types);
    fold = task.ids() == null ? null : new ImageFold(columns, task.ids());
    keyTypes = new DataType[task.key().length];
    for (int at = 0; at < keyTypes.length; at++) keyTypes[at] = types[task.key()[at]];
    toKey = isKeyed ? UnsafeProjection.create(keyTypes) : null;
    keyParts = new GenericInternalRow(keyTypes.length);
    steps = new ArrayDeque<>(task.bucket().steps());
    given = new GenericInternalRow(task.given().length);
  }

  /** A row that is given. */
  private record Change(UTF8String type, UnsafeRow row, Step by, byte[] set) {}

  /** What a row was before the first commit that wrote it, the last one that changed it, if any did, and what they set. */
  private static final class Net {
    final UnsafeRow first;
    Step last;
    byte[] set = {}; // null: one of them wrote the whole row, or removed it

    Net(UnsafeRow first) {
      this.first = first;
    }
  }

  @Override
  public boolean next() throws IOException {
    while (ready.isEmpty()) {
      if (isDone) return false;
      advance();
    }
    Change change = ready.poll();
    for (int at = 0; at < task.given().length; at++) {
      int from = task.given()[at];
      Object value =
          switch (from) {
            case ChangesPartition.OfBucket.TYPE -> change.type;
            case ChangesPartition.OfBucket.VERSION -> change.by.version();
            case ChangesPartition.OfBucket.TIME -> change.by.timeUs();
            case ChangesPartition.OfBucket.SET -> change.set == null ? null : fold.namesIn(change.set);
            default -> change.row.isNullAt(from) ? null : change.row.get(from, columns.apply(from).dataType());
          };
      given.update(at, value);
    }
    return true;
  }

  @Override
  public InternalRow get() {
    return given;
  }

  @Override
  public void close() throws IOException {
    if (open != null) open.close();
    open = null;
  }

  // -- commits

  private void advance() throws IOException {
    if (current == null) current = before();
    if (step == null) {
      step = steps.poll();
      if (step == null) finish();
      else begin();
    } else if (open.next()) {
      take(open.get());
    } else {
      close();
      end();
      step = null;
    }
  }

  private void begin() {
    open = reader(task.shapes(), step.rows());
    after = step.resets() ? new HashMap<>() : null;
    images = step.gone() == null ? null : new HashSet<>();
  }

  private void take(ColumnarBatch batch) {
    Iterator<InternalRow> rows = batch.rowIterator();
    int beside = columns.length();
    while (rows.hasNext()) {
      InternalRow row = rows.next();
      Object key = keyOf(row, task.key());
      boolean isGone = isKeyed && !row.isNullAt(beside) && row.getInt(beside) == RowOp.ROW_OP_TOMBSTONE_VALUE;
      UnsafeRow image = isGone ? null : toValues.apply(row).copy();
      if (after != null) {
        compare(key, current.remove(key), image, null);
        after.put(key, image);
        continue;
      }
      UnsafeRow before = current.get(key);
      byte[] set = fold == null || image == null || row.isNullAt(beside + 1) ? null : row.getBinary(beside + 1);
      if (set != null && before != null) image = fold.row(before, image, set);
      compare(key, before, image, set);
      if (images != null) images.add(key);
      if (image == null) current.remove(key);
      else if (keeps(key)) current.put(key, image);
    }
  }

  private void end() {
    if (after != null) {
      current.forEach((key, row) -> compare(key, row, null, null));
      current = after;
    } else if (images != null) {
      RowIds.read(step.gone()).forEach(id -> {
        if (!images.contains(id)) compare(id, current.remove(id), null, null);
      });
    }
  }

  /** `set`: the bits of the columns that the commit set, null if it wrote the whole row or removed it. */
  private void compare(Object key, UnsafeRow before, UnsafeRow image, byte[] set) {
    boolean differs = Rows.differ(before, image, columns);
    if (task.mode() == ChangesMode.LOG || !keeps(key)) {
      if (differs) emit(before, image, step, set);
    } else if (fold != null || differs || (image != null && !image.equals(before))) { // 0.0 and -0.0 are one value
      Net net = nets.computeIfAbsent(key, none -> new Net(before));
      if (differs) net.last = step;
      net.set = set == null || net.set == null ? null : ImageFold.united(net.set, set);
    }
  }

  /** Whether the range may touch the row once more. */
  private boolean keeps(Object key) {
    return isKeyed || task.bucket().isWhole() || wanted.contains((Long) key);
  }

  private void emit(UnsafeRow before, UnsafeRow image, Step by, byte[] set) {
    if (before != null && task.mode() != ChangesMode.LATEST) {
      ready.add(new Change(image == null ? ChangeColumns.DELETE : ChangeColumns.PREIMAGE, before, by, set));
    }
    if (image != null) ready.add(new Change(before == null ? ChangeColumns.INSERT : ChangeColumns.POSTIMAGE, image, by, set));
  }

  private void finish() {
    nets.forEach(
        (key, net) -> {
          UnsafeRow image = current.get(key);
          if (Rows.differ(net.first, image, columns)) emit(net.first, image, net.last, net.set);
        });
    isDone = true;
  }

  // -- rows before the range

  private Map<Object, UnsafeRow> before() throws IOException {
    BucketChanges bucket = task.bucket();
    if (bucket.wanted() != null) wanted = RowIds.read(bucket.wanted());
    Set<Object> keys = isKeyed && !bucket.isWhole() ? keysOfRange() : null;
    Map<Object, UnsafeRow> found = new HashMap<>();
    try (LakeReader reader = reader(task.shapes(), bucket.before())) {
      while (reader.next()) {
        Iterator<InternalRow> rows = reader.get().rowIterator();
        while (rows.hasNext()) {
          InternalRow row = rows.next();
          Object key = keyOf(row, task.key());
          boolean matters = keys != null ? keys.contains(key) : bucket.isWhole() || wanted.contains((Long) key);
          if (matters) found.put(key, toValues.apply(row).copy());
        }
      }
    }
    return found;
  }

  private Set<Object> keysOfRange() throws IOException {
    int[] places = new int[keyTypes.length];
    for (int at = 0; at < places.length; at++) places[at] = at;
    Set<Object> found = new HashSet<>();
    try (LakeReader reader = reader(task.keyShapes(), task.bucket().keys())) {
      while (reader.next()) {
        Iterator<InternalRow> rows = reader.get().rowIterator();
        while (rows.hasNext()) found.add(keyOf(rows.next(), places));
      }
    }
    return found;
  }

  private Object keyOf(InternalRow row, int[] places) {
    if (!isKeyed) return row.getLong(columns.length());
    for (int at = 0; at < places.length; at++) keyParts.update(at, row.get(places[at], keyTypes[at]));
    return toKey.apply(keyParts).copy();
  }

  private static LakeReader reader(Shape[] shapes, List<Unit> units) {
    return new LakeReader(shapes, new LakePartition(units));
  }
}
