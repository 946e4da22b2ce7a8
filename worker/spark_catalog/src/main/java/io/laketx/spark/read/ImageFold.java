package io.laketx.spark.read;

import io.laketx.v1.Column;
import io.laketx.v1.Table;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Images that set single columns, folded: what a key has after its images, in the order of their commits.
 *
 * <p>The fold of images is an image: a tombstone, a whole one, or one that sets what any of them sets. What an image
 * doesn't set it carries all the same, for a key that isn't there before: it is whole then.
 */
public final class ImageFold {
  private static final int NOWHERE = -1; // a column that each image has, and that none sets

  private final int[] ids;
  private final String[] names;
  private final DataType[] types;
  private final UnsafeProjection toRow;
  private final GenericInternalRow parts;

  /** `ids`: those of the columns by which images say what they set. */
  public ImageFold(StructType columns, int[] ids) {
    this.ids = ids;
    names = columns.fieldNames();
    types = Arrays.stream(columns.fields()).map(one -> one.dataType()).toArray(DataType[]::new);
    toRow = UnsafeProjection.create(types);
    parts = new GenericInternalRow(types.length);
  }

  /** The ids of columns of a table; others, and those of its key, are the newest image's. */
  public static int[] idsOf(Table meta, StructType columns) {
    Map<String, Integer> known = new HashMap<>();
    for (Column one : meta.getColumnsList()) known.put(one.getName(), one.getColumnId());
    meta.getPrimaryKeyList().forEach(known::remove);
    return Arrays.stream(columns.fieldNames()).mapToInt(name -> known.getOrDefault(name, NOWHERE)).toArray();
  }

  /** An image: no row if it is a tombstone, no bits if it is whole. */
  record Image(UnsafeRow row, byte[] bits) {
    static final Image TOMBSTONE = new Image(null, null);

    boolean isGone() {
      return row == null;
    }
  }

  /** A copy of the columns, which a row has first. */
  public UnsafeRow copy(InternalRow row) {
    return toRow.apply(row).copy();
  }

  /** The image of both. */
  Image folded(Image before, Image after) {
    if (after.bits == null) return after;
    if (before.isGone()) return new Image(after.row, null);
    return new Image(row(before.row, after.row, after.bits), before.bits == null ? null : united(before.bits, after.bits));
  }

  /** The row after an image that sets the columns of these bits. */
  public UnsafeRow row(InternalRow before, InternalRow image, byte[] bits) {
    for (int at = 0; at < ids.length; at++) {
      InternalRow from = ids[at] == NOWHERE || isSet(bits, ids[at]) ? image : before;
      parts.update(at, from.isNullAt(at) ? null : from.get(at, types[at]));
    }
    return toRow.apply(parts).copy();
  }

  /** The ids of columns as bits. */
  public static byte[] bits(Collection<Integer> ids) {
    byte[] found = new byte[(Collections.max(ids) >> 3) + 1];
    for (int id : ids) found[id >> 3] |= (byte) (1 << (id & 7));
    return found;
  }

  /** The names of the columns of these bits that the table still has. */
  public ArrayData namesIn(byte[] bits) {
    return ArrayData.toArrayData(
        IntStream.range(0, ids.length)
            .filter(at -> ids[at] != NOWHERE && isSet(bits, ids[at]))
            .mapToObj(at -> UTF8String.fromString(names[at]))
            .toArray());
  }

  /** The lowest bit of the first byte is id 0. */
  private static boolean isSet(byte[] bits, int id) {
    return id >> 3 < bits.length && (bits[id >> 3] >> (id & 7) & 1) == 1;
  }

  /** The bits of what either sets. */
  public static byte[] united(byte[] some, byte[] others) {
    byte[] found = Arrays.copyOf(some, Math.max(some.length, others.length));
    for (int at = 0; at < others.length; at++) found[at] |= others[at];
    return found;
  }
}
