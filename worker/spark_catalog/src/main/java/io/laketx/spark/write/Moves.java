package io.laketx.spark.write;

import io.laketx.spark.read.MetadataColumns;
import io.laketx.v1.Table;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * Rows of a primary-key table that leave their partition, of one task. A key's bucket is the same in every partition, so
 * the task has all rows of the keys that it sees.
 *
 * <p>What leaves comes first, sorted by where it goes; its tombstones, which belong elsewhere, are kept until the end. A
 * place that a row has left is free: what lands there needs no tombstone before it.
 */
final class Moves {
  private final Table meta;
  private final RowFiles files;
  private final DataType[] types;
  private final int[] keys;
  private final int[] parts;
  private final UnsafeProjection toKey;
  private final UnsafeProjection toPlace;
  private final GenericInternalRow keyValues;
  private final GenericInternalRow placeValues; // the bucket, then the partition
  private final Map<UnsafeRow, Place> places = new LinkedHashMap<>();
  private final Set<UnsafeRow> added; // keys that are new in the table; null where each partition may have them
  private boolean isLanding;

  /** What happens to one bucket of one partition, by keys. */
  private record Place(InternalRow row, int bucket, Map<UnsafeRow, InternalRow> left, Set<UnsafeRow> landed, Set<UnsafeRow> filled) {}

  /** Keys that came into a bucket of a partition from elsewhere, where nothing has made room for them. */
  record Landed(byte[] partition, int bucket, byte[][] keys) implements Serializable {}

  Moves(Staging staging, RowFiles files) {
    this.files = files;
    meta = staging.meta();
    types = staging.types();
    keys = staging.ordinals(meta.getPrimaryKeyList());
    parts = staging.ordinals(meta.getPartitionColumnsList());
    keyValues = new GenericInternalRow(keys.length);
    placeValues = new GenericInternalRow(1 + parts.length);
    DataType[] keyTypes = new DataType[keys.length];
    for (int at = 0; at < keys.length; at++) keyTypes[at] = types[keys[at]];
    DataType[] placeTypes = new DataType[1 + parts.length];
    placeTypes[0] = DataTypes.IntegerType;
    for (int at = 0; at < parts.length; at++) placeTypes[1 + at] = types[parts[at]];
    toKey = UnsafeProjection.create(keyTypes);
    toPlace = UnsafeProjection.create(placeTypes);
    added = MetadataColumns.keySpansPartitions(meta) ? new HashSet<>() : null;
  }

  /** A key that is in its partition no more; the row has what the table asks for. */
  void leave(InternalRow tombstone) {
    place(tombstone).left.put(key(tombstone).copy(), tombstone.copy());
  }

  /** The new image of a row that comes from another partition. */
  void land(InternalRow row) throws IOException {
    if (!place(row).landed.add(key(row).copy())) {
      files.refuse("KEY_EXISTS", keyExists(meta, text(row), "two rows would have that key"));
      return;
    }
    isLanding = true;
    files.put(row);
  }

  /** A row that is new, or changed where it is. */
  void put(InternalRow row, boolean isNew) throws IOException {
    settle();
    if (isNew && added != null && !added.add(key(row).copy())) {
      files.refuseTwice(row);
      return;
    }
    Place place = known(row);
    if (place != null) {
      UnsafeRow key = key(row);
      if (place.landed.contains(key)) {
        if (isNew) files.refuseTwice(row);
        else files.refuse("KEY_EXISTS", keyExists(meta, text(row), "two rows would have that key"));
        return;
      }
      if (place.left.containsKey(key)) place.filled.add(key.copy());
    }
    files.put(row, isNew);
  }

  /** A key that goes, among the rows that stay. */
  void bury(InternalRow tombstone) throws IOException {
    settle();
    Place place = known(tombstone);
    if (place != null && place.landed.contains(key(tombstone))) leave(tombstone);
    else files.bury(tombstone);
  }

  /** After the last row: writes the tombstones that were kept. */
  List<Landed> close() throws IOException {
    List<Landed> found = new ArrayList<>();
    files.turn();
    for (Place place : places.values()) {
      List<InternalRow> gone = new ArrayList<>();
      place.left.forEach(
          (key, tombstone) -> {
            if (!place.landed.contains(key) && !place.filled.contains(key)) gone.add(tombstone);
          });
      gone.sort(SparkPlans.ordering(keys, types));
      for (InternalRow one : gone) files.bury(one);
      byte[][] unsure =
          place.landed.stream().filter(key -> !place.left.containsKey(key)).map(UnsafeRow::getBytes).toArray(byte[][]::new);
      if (unsure.length > 0) found.add(new Landed(files.partition(place.row).toByteArray(), place.bucket, unsure));
    }
    return found;
  }

  static String keyExists(Table meta, String row, String why) {
    return "no row of " + meta.getName() + " can move to " + row + ": " + why
        + "; delete that one first, or choose another key";
  }

  /** What landed is sorted by itself, and what stays is. */
  private void settle() throws IOException {
    if (isLanding) files.turn();
    isLanding = false;
  }

  private Place place(InternalRow row) {
    return places.computeIfAbsent(
        placeOf(row).copy(),
        place -> new Place(row.copy(), place.getInt(0), new HashMap<>(), new HashSet<>(), new HashSet<>()));
  }

  private Place known(InternalRow row) {
    return places.isEmpty() ? null : places.get(placeOf(row));
  }

  private UnsafeRow placeOf(InternalRow row) {
    placeValues.update(0, files.bucketOf(row));
    for (int at = 0; at < parts.length; at++) {
      placeValues.update(1 + at, WireValues.canonical(row.get(parts[at], types[parts[at]])));
    }
    return toPlace.apply(placeValues);
  }

  private UnsafeRow key(InternalRow row) {
    for (int at = 0; at < keys.length; at++) keyValues.update(at, row.get(keys[at], types[keys[at]]));
    return toKey.apply(keyValues);
  }

  private String text(InternalRow row) {
    List<String> found = new ArrayList<>();
    for (int at : parts) found.add(meta.getColumns(at).getName() + "=" + text(row, at));
    for (int at : keys) found.add(meta.getColumns(at).getName() + "=" + text(row, at));
    return String.join(", ", found);
  }

  private String text(InternalRow row, int at) {
    return row.isNullAt(at) ? "NULL" : WireValues.text(row.get(at, types[at]), types[at]);
  }
}
