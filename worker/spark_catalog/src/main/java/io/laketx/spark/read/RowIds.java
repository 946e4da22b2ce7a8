package io.laketx.spark.read;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongConsumer;
import org.roaringbitmap.RoaringBitmap;

/**
 * A set of row ids, in the portable form of 64-bit roaring bitmaps: how many parts, and of each the upper 32 bits of its
 * ids and a bitmap of the lower ones, all with the lowest byte first.
 */
public final class RowIds {
  private final TreeMap<Integer, RoaringBitmap> parts = new TreeMap<>();

  public static RowIds read(byte[] bytes) {
    RowIds found = new RowIds();
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes))) {
      long count = Long.reverseBytes(in.readLong());
      for (long at = 0; at < count; at++) {
        int high = Integer.reverseBytes(in.readInt());
        RoaringBitmap part = new RoaringBitmap();
        part.deserialize(in);
        found.parts.put(high, part);
      }
    } catch (IOException error) {
      throw new UncheckedIOException("a set of row ids can't be read", error);
    }
    return found;
  }

  public byte[] bytes() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (DataOutputStream out = new DataOutputStream(bytes)) {
      out.writeLong(Long.reverseBytes(parts.size()));
      for (Map.Entry<Integer, RoaringBitmap> one : parts.entrySet()) {
        out.writeInt(Integer.reverseBytes(one.getKey()));
        one.getValue().serialize(out);
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return bytes.toByteArray();
  }

  public void addAll(RowIds others) {
    others.parts.forEach((high, part) -> parts.computeIfAbsent(high, none -> new RoaringBitmap()).or(part));
  }

  public boolean contains(long id) {
    RoaringBitmap part = parts.get((int) (id >>> 32));
    return part != null && part.contains((int) id);
  }

  public boolean isEmpty() {
    return parts.values().stream().allMatch(RoaringBitmap::isEmpty);
  }

  /** Each of them, in order within its part. */
  public void forEach(LongConsumer each) {
    parts.forEach((high, part) -> part.forEach((int low) -> each.accept(((long) high << 32) | (low & 0xffff_ffffL))));
  }

  /** Those from the first to the last, both included. */
  RowIds within(long first, long last) {
    RowIds found = new RowIds();
    for (Map.Entry<Integer, RoaringBitmap> one : overlapping(first, last).entrySet()) {
      RoaringBitmap part = cut(one, first, last);
      if (!part.isEmpty()) found.parts.put(one.getKey(), part);
    }
    return found;
  }

  /** Those of so many rows from the first id on, as positions: the first id's is 0. */
  RoaringBitmap positions(long first, long rows) {
    RoaringBitmap found = new RoaringBitmap();
    if (rows <= 0) return found;
    long last = first + rows - 1;
    for (Map.Entry<Integer, RoaringBitmap> one : overlapping(first, last).entrySet()) {
      long offset = ((long) one.getKey() << 32) - first;
      found.or(RoaringBitmap.addOffset(cut(one, first, last), offset));
    }
    return found;
  }

  private Map<Integer, RoaringBitmap> overlapping(long first, long last) {
    return parts.subMap((int) (first >>> 32), true, (int) (last >>> 32), true);
  }

  private static RoaringBitmap cut(Map.Entry<Integer, RoaringBitmap> part, long first, long last) {
    long begin = (long) part.getKey() << 32;
    long low = Math.max(first - begin, 0);
    long high = Math.min(last - begin, (1L << 32) - 1);
    return RoaringBitmap.and(part.getValue(), RoaringBitmap.bitmapOfRange(low, high + 1));
  }
}
