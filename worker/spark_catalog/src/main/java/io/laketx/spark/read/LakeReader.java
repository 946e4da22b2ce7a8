package io.laketx.spark.read;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.roaringbitmap.RoaringBitmap;

/** What one task reads, file after file and bucket after bucket. */
public final class LakeReader implements PartitionReader<ColumnarBatch> {
  private final Shape[] shapes;
  private final Deque<Unit> units;
  private final Deque<Opening> files = new ArrayDeque<>();
  private PartitionReader<ColumnarBatch> open;

  public LakeReader(Shape[] shapes, LakePartition partition) {
    this.shapes = shapes;
    units = new ArrayDeque<>(partition.units());
  }

  /** What is read next. */
  private interface Opening {
    PartitionReader<ColumnarBatch> open() throws IOException;
  }

  /** `hides`: what of the file is not shown, or null. */
  private Opening shown(FileTask file, Hides hides) {
    return () -> new ShownFile(shapes[file.shape()], file, hides);
  }

  @Override
  public boolean next() throws IOException {
    while (open == null || !open.next()) {
      close();
      while (files.isEmpty()) {
        if (units.isEmpty()) return false;
        unfold(units.poll());
      }
      open = files.poll().open();
    }
    return true;
  }

  @Override
  public ColumnarBatch get() {
    return open.get();
  }

  @Override
  public void close() throws IOException {
    if (open != null) open.close();
    open = null;
  }

  private void unfold(Unit unit) throws IOException {
    if (unit instanceof FileTask file) files.add(shown(file, hidesOf(file)));
    else if (unit instanceof FoldTask bucket) files.add(() -> new FoldedBucket(shapes, bucket));
    else unfoldBucket((BucketTask) unit);
  }

  private Hides hidesOf(FileTask file) {
    Shape shape = shapes[file.shape()];
    if (file.hiddenIds() != null) {
      return Hides.ids(RowIds.read(file.hiddenIds()), shape.ownIds(), shape.index(), file.firstRowId());
    }
    if (file.hiddenPositions() != null) return positions(bitmapOf(file.hiddenPositions()), shape);
    return shape.op() < 0 ? null : Hides.tombstones(shape.op());
  }

  private static Hides positions(RoaringBitmap hidden, Shape shape) {
    if (hidden.isEmpty()) return null;
    BitSet bits = new BitSet(hidden.last() + 1);
    hidden.forEach((int position) -> bits.set(position));
    return Hides.positions(bits.toLongArray(), shape.index());
  }

  private static RoaringBitmap bitmapOf(byte[] bytes) {
    RoaringBitmap found = new RoaringBitmap();
    try {
      found.deserialize(ByteBuffer.wrap(bytes));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return found;
  }

  // -- a bucket whose files hide rows of each other

  private void unfoldBucket(BucketTask bucket) throws IOException {
    List<String> newer = bucket.newer().stream().map(FileTask::path).toList();
    List<Opening> openings = known(bucket, newer);
    if (openings == null && remember(bucket, newer)) openings = known(bucket, newer);
    files.addAll(openings == null ? merged(bucket, newer) : openings);
  }

  /** By what was found before; null unless that is known of all files. */
  private List<Opening> known(BucketTask bucket, List<String> newer) {
    List<Opening> openings = new ArrayList<>();
    for (List<FileTask> some : List.of(bucket.newer(), bucket.lowestKnown())) {
      for (FileTask file : some) {
        RoaringBitmap hidden = HiddenRows.shared().find(HiddenRows.nameOf(newer, file.path()));
        if (hidden == null) return null;
        openings.add(shown(file, positions(hidden, shapes[file.shape()])));
      }
    }
    return openings;
  }

  /** Remembers the vectors that storage has; false if it has none that can be used. */
  private boolean remember(BucketTask bucket, List<String> newer) {
    KeptVectors kept = bucket.kept();
    byte[] content = shapes[bucket.newer().get(0).shape()].parquet().readBeside(kept.path());
    Map<String, RoaringBitmap> found = content == null ? null : kept.read(content);
    if (found == null) return false;
    found.forEach((path, hidden) -> HiddenRows.shared().keep(HiddenRows.nameOf(newer, path), hidden));
    return true;
  }

  private List<Opening> merged(BucketTask bucket, List<String> newerPaths) throws IOException {
    KeyTable newer = KeyTable.of(shapes[bucket.newerKeys().get(0).shape()].keyTypes());
    List<Opening> openings = new ArrayList<>();
    for (int at = 0; at < bucket.newer().size(); at++) {
      FileTask file = bucket.newer().get(at);
      RoaringBitmap hidden = new RoaringBitmap();
      long rows = readKeys(bucket.newerKeys().get(at), newer, hidden);
      HiddenRows.shared().keep(HiddenRows.nameOf(newerPaths, file.path()), hidden);
      if (hidden.getLongCardinality() == rows) continue;
      openings.add(shown(file, positions(hidden, shapes[file.shape()])));
    }
    for (FileTask file : bucket.lowest()) {
      Shape shape = shapes[file.shape()];
      String name = HiddenRows.nameOf(newerPaths, file.path());
      Consumer<RoaringBitmap> keep = shape.parquet().isWhole() ? found -> HiddenRows.shared().keep(name, found) : null;
      openings.add(shown(file, Hides.keys(newer, shape.keys(), shape.op(), keep)));
    }
    return openings;
  }

  /** Adds a file's keys; a row is hidden where its key was there already, and where it is a tombstone. How many rows. */
  private long readKeys(FileTask file, KeyTable newer, RoaringBitmap hidden) throws IOException {
    Shape shape = shapes[file.shape()];
    ColumnVector[] keys = new ColumnVector[shape.keys().length];
    int position = 0;
    try (PartitionReader<ColumnarBatch> reader = shape.parquet().open(file)) {
      while (reader.next()) {
        ColumnarBatch batch = reader.get();
        for (int at = 0; at < keys.length; at++) keys[at] = batch.column(shape.keys()[at]);
        ColumnVector op = shape.op() < 0 ? null : batch.column(shape.op());
        newer.turnTo(keys);
        int count = batch.numRows();
        for (int row = 0; row < count; row++, position++) {
          boolean isNew = newer.add(row);
          boolean isGone = op != null && !op.isNullAt(row) && op.getInt(row) == Hides.TOMBSTONE;
          if (!isNew || isGone) hidden.add(position);
        }
      }
    }
    return position;
  }
}
