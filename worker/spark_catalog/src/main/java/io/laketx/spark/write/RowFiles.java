package io.laketx.spark.write;

import io.laketx.spark.keys.KeyHash;
import io.laketx.v1.Column;
import io.laketx.v1.DataFile;
import io.laketx.v1.FileKind;
import io.laketx.v1.Limit;
import io.laketx.v1.Partition;
import io.laketx.v1.PartitionValue;
import io.laketx.v1.RowOp;
import io.laketx.v1.Table;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.types.DataType;

/**
 * The files of one task: a new one begins where the partition or the bucket changes. Rows come sorted by these, and in a
 * primary-key table by the key within them.
 */
final class RowFiles {
  static final byte UPSERT = RowOp.ROW_OP_UPSERT_VALUE;
  static final byte TOMBSTONE = RowOp.ROW_OP_TOMBSTONE_VALUE;
  private static final int KEYS_MAX = Limit.LIMIT_KEYS_NAMED_VALUE; // more are judged by bucket

  private final Staging staging;
  private final Table meta;
  private final String prefix;
  private final DataType[] types;
  private final int[] keys;
  private final DataType[] keyTypes;
  private final int[] parts;
  private final int[] required;
  private final boolean isOneBucket;
  private final boolean isNewestFirst; // of the rows of a key the first one counts
  private final JoinedRow joined = new JoinedRow();
  private final GenericInternalRow beside;
  private final byte[] bits; // of the columns that images set; null: they are whole
  private final List<Told.Written> done = new ArrayList<>();
  private Told.Refused refused;

  private RowFile open;
  private String path;
  private Object[] place; // partition values of the rows that come
  private int bucket = -1;
  private Object[] lastKey;
  private InternalRow waiting; // a tombstone, which a new image of the same key makes needless
  private long waitingHash;
  private long rows;
  private long tombstones;
  private boolean hasNew; // a row that its writer may not have found
  private long idMin;
  private long idMax;
  private boolean hasIds;
  private long[] hashes = {};
  private int hashed;
  private int number;

  /** `isOneBucket`: Spark sends this task rows of one bucket alone. */
  RowFiles(Staging staging, int task, long attempt, boolean isOneBucket) {
    this.staging = staging;
    this.isOneBucket = isOneBucket;
    isNewestFirst = !staging.orderBy().isEmpty();
    meta = staging.meta();
    prefix = String.format("%s/0/part-%05d-%d-", staging.txnId(), task, attempt);
    types = staging.types();
    bits = staging.sets() == null ? null : staging.sets().bits();
    beside = new GenericInternalRow(bits == null ? 1 : 2);
    keys = staging.ordinals(meta.getPrimaryKeyList());
    keyTypes = Arrays.stream(keys).mapToObj(at -> types[at]).toArray(DataType[]::new);
    parts = staging.ordinals(meta.getPartitionColumnsList());
    List<String> filled =
        meta.getColumnsList().stream().filter(one -> !one.getNullable()).map(Column::getName).toList();
    required = staging.ordinals(filled);
  }

  Told.Refused refused() {
    return refused;
  }

  void refuse(String reason, String message) {
    if (refused == null) refused = new Told.Refused(reason, message);
  }

  void refuseTwice(InternalRow row) {
    refuse("KEY_TWICE", "the key " + keyText(row) + " stands twice in what is written to " + meta.getName()
        + "; keep one row of each key, or say by the option order_by which one is newer");
  }

  int bucketOf(InternalRow row) {
    return KeyHash.bucket(KeyHash.of(row, keys, keyTypes), meta.getBuckets());
  }

  /** A row of an append table; `rowId` is the id that it had, or null. */
  void append(InternalRow row, Long rowId) throws IOException {
    if (refused != null || lacksValue(row)) return;
    turnTo(row, 0);
    if (!staging.keepsIds()) {
      write(row);
      return;
    }
    if (rowId != null) {
      idMin = hasIds ? Math.min(idMin, rowId) : rowId;
      idMax = hasIds ? Math.max(idMax, rowId) : rowId;
      hasIds = true;
    }
    beside.update(0, rowId);
    write(joined.apply(row, beside));
  }

  /** A row of a primary-key table, which may be new. */
  void put(InternalRow row) throws IOException {
    put(row, true);
  }

  /** The same; `isNew` is false for a row that was found. */
  void put(InternalRow row, boolean isNew) throws IOException {
    if (refused != null || lacksValue(row)) return;
    long hash = KeyHash.of(row, keys, keyTypes);
    if (turnTo(row, KeyHash.bucket(hash, meta.getBuckets())) || !isLastKey(row)) {
      flush();
      remember(row);
    } else if (waiting != null) {
      waiting = null; // what comes takes its place
    } else {
      if (!isNewestFirst) refuseTwice(row);
      return;
    }
    hasNew |= isNew;
    boolean isWhole = bits == null || (isNew && staging.sets().areNewWhole());
    writeKeyed(row, hash, UPSERT, isWhole ? null : bits);
  }

  /** A key whose row goes; the row has what the table asks for, and NULL elsewhere. */
  void bury(InternalRow row) throws IOException {
    if (refused != null) return;
    long hash = KeyHash.of(row, keys, keyTypes);
    if (!turnTo(row, KeyHash.bucket(hash, meta.getBuckets())) && isLastKey(row)) return; // its new image is there
    flush();
    remember(row);
    waiting = row.copy();
    waitingHash = hash;
  }

  /** What comes goes into another file. */
  void turn() throws IOException {
    finish();
    place = null;
  }

  /** The entries of all that was written. */
  List<Told.Written> close() throws IOException {
    finish();
    return done;
  }

  /** Leaves what is open. */
  void drop() throws IOException {
    RowFile left = open;
    open = null;
    if (left != null) left.drop();
  }

  // -- rows

  private boolean lacksValue(InternalRow row) {
    for (int at : required) {
      if (row.isNullAt(at)) {
        String name = meta.getColumns(at).getName();
        refuse("NULL_NOT_ALLOWED", "a row has no " + name + ", which " + meta.getName() + " asks for");
        return true;
      }
    }
    return false;
  }

  private boolean isLastKey(InternalRow row) {
    if (lastKey == null) return false;
    for (int at = 0; at < keys.length; at++) {
      if (!WireValues.same(lastKey[at], row.get(keys[at], keyTypes[at]))) return false;
    }
    return true;
  }

  private void remember(InternalRow row) {
    lastKey = new Object[keys.length];
    for (int at = 0; at < keys.length; at++) lastKey[at] = WireValues.kept(row.get(keys[at], keyTypes[at]));
  }

  private String keyText(InternalRow row) {
    StringBuilder text = new StringBuilder();
    for (int at = 0; at < keys.length; at++) {
      String value = WireValues.text(row.get(keys[at], keyTypes[at]), keyTypes[at]);
      text.append(at == 0 ? "" : ", ").append(meta.getPrimaryKey(at)).append('=').append(value);
    }
    return text.toString();
  }

  private void flush() throws IOException {
    if (waiting == null) return;
    InternalRow row = waiting;
    waiting = null;
    writeKeyed(row, waitingHash, TOMBSTONE, null);
  }

  private void writeKeyed(InternalRow row, long hash, byte op, byte[] set) throws IOException {
    if (staging.tellsKeys()) {
      if (hashed == hashes.length && hashed <= KEYS_MAX) hashes = Arrays.copyOf(hashes, Math.max(16, hashed * 2));
      if (hashed < hashes.length) hashes[hashed] = hash;
      hashed++;
    }
    if (staging.kind() != FileKind.FILE_KIND_DELTA) {
      write(row);
      return;
    }
    if (op == TOMBSTONE) tombstones++;
    beside.update(0, op);
    if (bits != null) beside.update(1, set);
    write(joined.apply(row, beside));
  }

  private void write(InternalRow row) throws IOException {
    if (open == null) {
      path = prefix + number++ + staging.suffix();
      open = staging.create(path);
    }
    open.write(row);
    rows++;
  }

  // -- files

  /** Whether the row begins a new place. */
  private boolean turnTo(InternalRow row, int itsBucket) throws IOException {
    if (place != null && bucket == itsBucket && isSamePlace(row)) return false;
    if (isOneBucket && place != null && bucket != itsBucket) {
      throw new IllegalStateException("a row of bucket " + itsBucket + " came to the task of bucket " + bucket);
    }
    finish();
    bucket = itsBucket;
    place = placeOf(row);
    return true;
  }

  private boolean isSamePlace(InternalRow row) {
    for (int at = 0; at < parts.length; at++) {
      if (!WireValues.same(place[at], row.get(parts[at], types[parts[at]]))) return false;
    }
    return true;
  }

  private void finish() throws IOException {
    flush();
    lastKey = null;
    if (open == null) return;
    RowFile closing = open;
    open = null;
    DataFile.Builder entry =
        DataFile.newBuilder()
            .setPath(path)
            .setRows(rows)
            .setSchemaVersion(meta.getSchemaVersion())
            .setKind(staging.kind())
            .setTombstones(tombstones)
            .setPartition(partition(place));
    if (staging.isKeyed()) entry.setBucket(bucket);
    if (staging.keepsIds()) {
      entry.setCarriesRowIds(true);
      if (hasIds) entry.setRowIdMin(idMin).setRowIdMax(idMax);
    }
    closing.finish(entry);
    if (bits != null) staging.sets().tell(entry, meta, hasNew);
    long[] told = hashed <= KEYS_MAX ? Arrays.copyOf(hashes, hashed) : new long[0];
    done.add(new Told.Written(entry.build().toByteArray(), told));
    rows = 0;
    tombstones = 0;
    hasNew = false;
    hasIds = false;
    hashes = new long[0];
    hashed = 0;
  }

  private Object[] placeOf(InternalRow row) {
    Object[] found = new Object[parts.length];
    for (int at = 0; at < parts.length; at++) found[at] = WireValues.kept(row.get(parts[at], types[parts[at]]));
    return found;
  }

  Partition partition(InternalRow row) {
    return partition(placeOf(row));
  }

  private Partition partition(Object[] values) {
    Partition.Builder found = Partition.newBuilder();
    for (int at = 0; at < parts.length; at++) {
      Column column = meta.getColumns(parts[at]);
      found.addValues(
          PartitionValue.newBuilder()
              .setColumn(column.getName())
              .setValue(WireValues.of(values[at], column.getType())));
    }
    return found.build();
  }
}
