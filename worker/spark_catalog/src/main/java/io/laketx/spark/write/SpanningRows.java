package io.laketx.spark.write;

import io.laketx.spark.keys.KeyHash;
import io.laketx.spark.read.LakeReader;
import io.laketx.spark.read.Unit;
import io.laketx.v1.FileKind;
import io.laketx.v1.Table;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataType;

/**
 * Rows of one task that come into a table with a key across partitions. A key's bucket number is the same in all partitions,
 * so the task has all rows of the keys that it sees. After the last row of a bucket number it looks up where its keys live,
 * and hides the rows in other partitions than the new ones.
 */
final class SpanningRows implements DataWriter<InternalRow> {
  private static final long BYTES_TOGETHER = 64L << 20; // of rows that wait to be written by partition

  private final Table meta;
  private final RowFiles files;
  private final KeyPlaces places; // null: nothing of the table stays
  private final boolean hides; // else the driver judges what lives elsewhere
  private final boolean isNewestFirst; // rows come by key, and the first of a key counts; else by partition
  private final DataType[] types;
  private final int[] keys;
  private final int[] parts;
  private final int[] ofTombstone;
  private final int[] keysOfTombstone;
  private final UnsafeProjection toKey;
  private final UnsafeProjection toPlace;
  private final UnsafeProjection toRow;
  private final Comparator<InternalRow> byKey;
  private final Map<UnsafeRow, Written> written = new HashMap<>(); // this bucket number's keys
  private final Map<UnsafeRow, List<InternalRow>> waiting = new LinkedHashMap<>();
  private final Map<UnsafeRow, Told.Elsewhere> elsewhere = new LinkedHashMap<>();
  private final boolean mayWait;
  private boolean waits;
  private long waitingBytes;
  private final int[] needed; // columns of a tombstone, beside its key and partition
  private final UnsafeProjection toNeeded;
  private int bucket = -1;
  private UnsafeRow place;

  /** Of a key: the partition of its new row, and of this what a tombstone needs; null where it needs nothing. */
  private record Written(UnsafeRow place, UnsafeRow needed) {}

  /** A written key by its hash. */
  private record Hashed(long hash, UnsafeRow key, Written now) {}

  SpanningRows(Staging staging, KeyPlaces places, RowFiles files) {
    this.files = files;
    this.places = places;
    meta = staging.meta();
    types = staging.types();
    hides = staging.kind() == FileKind.FILE_KIND_DELTA;
    isNewestFirst = !staging.orderBy().isEmpty();
    mayWait = isNewestFirst || (hides && places != null);
    waits = mayWait;
    keys = staging.ordinals(meta.getPrimaryKeyList());
    parts = staging.ordinals(meta.getPartitionColumnsList());
    ofTombstone = staging.ordinals(RowChanges.ofRowId(meta));
    keysOfTombstone = new int[keys.length]; // they come first
    for (int at = 0; at < keys.length; at++) keysOfTombstone[at] = at;
    toKey = projection(keys);
    toPlace = projection(parts);
    toRow = UnsafeProjection.create(types);
    byKey = SparkPlans.ordering(keys, types);
    needed = Arrays.stream(ofTombstone).filter(at -> !has(keys, at) && !has(parts, at)).toArray();
    toNeeded = projection(needed);
  }

  private static boolean has(int[] ordinals, int column) {
    return Arrays.stream(ordinals).anyMatch(at -> at == column);
  }

  private UnsafeProjection projection(int[] ordinals) {
    DataType[] found = new DataType[ordinals.length];
    for (int at = 0; at < found.length; at++) found[at] = types[ordinals[at]];
    return UnsafeProjection.create(found);
  }

  @Override
  public void write(InternalRow row) throws IOException {
    int its = files.bucketOf(row);
    if (its != bucket) settle();
    bucket = its;
    UnsafeRow key = keyOf(row, keys);
    UnsafeRow now = toPlace.apply(values(row, parts));
    if (!now.equals(place)) place = now.copy();
    boolean isNew = !written.containsKey(key);
    if (isNew) written.put(key.copy(), new Written(place, needed.length == 0 ? null : toNeeded.apply(values(row, needed)).copy()));
    if (isNew && waits) hold(row);
    else if (isNew) files.put(row);
    else if (!isNewestFirst) files.refuseTwice(row);
  }

  /**
   * Rows wait for tombstones that go into the same file. If they are many they don't, but rows that come by key wait for
   * others of their partition, anyhow.
   */
  private void hold(InternalRow row) throws IOException {
    UnsafeRow kept = toRow.apply(row).copy();
    waiting.computeIfAbsent(place, none -> new ArrayList<>()).add(kept);
    waitingBytes += kept.getSizeInBytes();
    if (waitingBytes < BYTES_TOGETHER) return;
    release(Map.of());
    waits = isNewestFirst;
  }

  /** Writes what waits, and tombstones that go into partitions, by key, as the rows of a partition are. */
  private void release(Map<UnsafeRow, List<InternalRow>> left) throws IOException {
    Set<UnsafeRow> all = new LinkedHashSet<>(waiting.keySet());
    all.addAll(left.keySet());
    for (UnsafeRow one : all) {
      files.turn();
      Iterator<InternalRow> gone = left.getOrDefault(one, List.of()).iterator();
      InternalRow next = gone.hasNext() ? gone.next() : null;
      for (InternalRow row : waiting.getOrDefault(one, List.of())) {
        for (; next != null && byKey.compare(next, row) < 0; next = gone.hasNext() ? gone.next() : null) files.bury(next);
        files.put(row);
      }
      for (; next != null; next = gone.hasNext() ? gone.next() : null) files.bury(next);
    }
    waiting.clear();
    waitingBytes = 0;
  }

  /** After the last row of a bucket number. */
  private void settle() throws IOException {
    boolean looks = places != null && !written.isEmpty() && files.refused() == null;
    Map<UnsafeRow, List<InternalRow>> left = looks ? left() : Map.of();
    written.clear();
    for (List<InternalRow> rows : left.values()) {
      rows.sort(byKey);
      if (!hides) elsewhere.putIfAbsent(toPlace.apply(values(rows.get(0), parts)).copy(), told(rows.get(0)));
    }
    release(hides ? left : Map.of());
    waits = mayWait;
  }

  /** Tombstones of the rows that live in other partitions than the new ones of their keys, by partition. */
  private Map<UnsafeRow, List<InternalRow>> left() throws IOException {
    Map<UnsafeRow, List<InternalRow>> found = new LinkedHashMap<>();
    try (LakeReader reader = places.indexed() == null ? places.reader(bucket) : places.reader(known(found))) {
      while (reader.next()) {
        for (Iterator<InternalRow> rows = reader.get().rowIterator(); rows.hasNext(); ) {
          InternalRow row = rows.next();
          Written now = written.get(toKey.apply(values(row, keysOfTombstone, keys)));
          if (now == null) continue;
          InternalRow partition = row.getStruct(ofTombstone.length, parts.length);
          UnsafeRow there = toPlace.apply(values(partition, first(parts.length), parts));
          if (there.equals(now.place)) continue;
          found.computeIfAbsent(there.copy(), none -> new ArrayList<>()).add(tombstone(row, partition));
        }
      }
    }
    return found;
  }

  /** Adds the tombstones that follow from the key index; returns what has to be read beside it. */
  private ArrayList<Unit> known(Map<UnsafeRow, List<InternalRow>> found) {
    DataType[] keyTypes = Arrays.stream(keys).mapToObj(at -> types[at]).toArray(DataType[]::new);
    Hashed[] sorted =
        written.entrySet().stream()
            .map(one -> new Hashed(KeyHash.of(one.getKey(), keysOfTombstone, keyTypes), one.getKey(), one.getValue()))
            .sorted((one, other) -> Long.compareUnsigned(one.hash, other.hash))
            .toArray(Hashed[]::new);
    long[] hashes = Arrays.stream(sorted).mapToLong(Hashed::hash).distinct().toArray();
    IndexedPlaces indexed = places.indexed();
    IndexedPlaces.Images images = places.find(bucket, hashes);
    UnsafeRow[] there = new UnsafeRow[indexed.partitionCount()];
    int hash = -1;
    for (Hashed one : sorted) {
      if (hash < 0 || hashes[hash] != one.hash) hash++;
      images.forEach(
          hash,
          number -> {
            InternalRow partition = indexed.partition(number);
            if (there[number] == null) there[number] = placeOf(partition);
            if (there[number].equals(one.now.place)) return;
            found.computeIfAbsent(there[number], none -> new ArrayList<>()).add(tombstone(one, partition));
          });
    }
    return images.others();
  }

  private UnsafeRow placeOf(InternalRow partition) {
    return toPlace.apply(values(partition, first(parts.length), parts)).copy();
  }

  private InternalRow tombstone(Hashed one, InternalRow partition) {
    GenericInternalRow found = new GenericInternalRow(types.length);
    for (int at = 0; at < keys.length; at++) found.update(keys[at], one.key.get(at, types[keys[at]]));
    for (int at = 0; at < needed.length; at++) found.update(needed[at], one.now.needed.get(at, types[needed[at]]));
    return in(partition, found);
  }

  private InternalRow tombstone(InternalRow row, InternalRow partition) {
    GenericInternalRow found = new GenericInternalRow(types.length);
    for (int at = 0; at < ofTombstone.length; at++) {
      found.update(ofTombstone[at], row.isNullAt(at) ? null : row.get(at, types[ofTombstone[at]]));
    }
    return in(partition, found);
  }

  private InternalRow in(InternalRow partition, GenericInternalRow found) {
    for (int at = 0; at < parts.length; at++) {
      found.update(parts[at], partition.isNullAt(at) ? null : partition.get(at, types[parts[at]]));
    }
    return toRow.apply(found).copy(); // what is read is read into the same memory
  }

  private Told.Elsewhere told(InternalRow row) {
    List<String> text = new ArrayList<>();
    for (int[] some : List.of(parts, keys)) {
      for (int at : some) {
        String value = row.isNullAt(at) ? "NULL" : WireValues.text(row.get(at, types[at]), types[at]);
        text.add(meta.getColumns(at).getName() + "=" + value);
      }
    }
    return new Told.Elsewhere(files.partition(row).toByteArray(), String.join(", ", text));
  }

  private static int[] first(int count) {
    int[] found = new int[count];
    for (int at = 0; at < count; at++) found[at] = at;
    return found;
  }

  private UnsafeRow keyOf(InternalRow row, int[] ordinals) {
    return toKey.apply(values(row, ordinals));
  }

  private GenericInternalRow values(InternalRow row, int[] ordinals) {
    return values(row, ordinals, ordinals);
  }

  /** Values as they are compared; `columns`: which ones of the table they are. */
  private GenericInternalRow values(InternalRow row, int[] ordinals, int[] columns) {
    GenericInternalRow found = new GenericInternalRow(ordinals.length);
    for (int at = 0; at < ordinals.length; at++) {
      Object value = row.isNullAt(ordinals[at]) ? null : row.get(ordinals[at], types[columns[at]]);
      found.update(at, WireValues.canonical(value));
    }
    return found;
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    settle();
    List<Told.Written> done = files.close();
    return new Told(done, Map.of(), List.of(), List.copyOf(elsewhere.values()), files.refused());
  }

  @Override
  public void abort() throws IOException {
    files.drop();
  }

  @Override
  public void close() {}
}
