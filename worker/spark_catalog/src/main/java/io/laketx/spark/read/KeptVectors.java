package io.laketx.spark.read;

import io.laketx.spark.keys.Digests;
import io.laketx.v1.Column;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Table;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.roaringbitmap.RoaringBitmap;

/**
 * Where storage may have the deletion vectors of a bucket of a primary-key table, and which of them a task needs.
 *
 * <p>They are named by what they follow from, and have the digest of their content: `worker/files/kept_vectors.py` writes
 * them, and tells their form. A task that doesn't find them reads the keys.
 *
 * @param path of the file that has the vectors of all of the bucket's files
 * @param name the digest that it is named by
 * @param entries the files that it must have vectors of
 */
record KeptVectors(String path, byte[] name, List<Entry> entries) implements Serializable {
  private static final byte[] MAGIC = "LTXVEC01".getBytes(StandardCharsets.US_ASCII);
  private static final int DIGEST_BYTES = 32;

  /** A file of the bucket: its data version and path by its entry, how many rows it has, and where it lies. */
  record Entry(long dataVersion, String path, long rows, String place) implements Serializable {}

  /** Those of a bucket whose files are of more than one data version. */
  static KeptVectors of(Snapshot snapshot, List<LiveEntry> files, long lowest) {
    byte[] name = nameOf(snapshot.meta(), files, lowest);
    List<Entry> entries = new ArrayList<>();
    for (LiveEntry one : files) {
      String path = one.getFile().getPath();
      entries.add(new Entry(one.getDataVersion(), path, one.getFile().getRows(), snapshot.pathOf(path)));
    }
    String path = snapshot.pathOf("_vectors/" + HexFormat.of().formatHex(name) + ".dv");
    return new KeptVectors(path, name, entries);
  }

  private static byte[] nameOf(Table meta, List<LiveEntry> files, long lowest) {
    Map<String, Long> ids = new HashMap<>();
    for (Column one : meta.getColumnsList()) ids.put(one.getName(), (long) one.getColumnId());
    String key = meta.getPrimaryKeyList().stream().map(one -> ids.get(one).toString()).collect(Collectors.joining(" "));
    record Newer(long dataVersion, byte[] path) {}
    List<Newer> newer = new ArrayList<>();
    for (LiveEntry one : files) {
      byte[] path = one.getFile().getPath().getBytes(StandardCharsets.UTF_8);
      if (one.getDataVersion() > lowest) newer.add(new Newer(one.getDataVersion(), path));
    }
    newer.sort(Comparator.comparingLong(Newer::dataVersion).reversed().thenComparing(Newer::path, Arrays::compareUnsigned));
    MessageDigest digest = Digests.sha256();
    digest.update((meta.getTableId() + "\n" + key + "\n").getBytes(StandardCharsets.UTF_8));
    for (Newer one : newer) {
      digest.update((one.dataVersion + " ").getBytes(StandardCharsets.US_ASCII));
      digest.update(one.path);
      digest.update((byte) '\n');
    }
    return digest.digest();
  }

  /** The hidden positions of each file, by where it lies; null unless the content has them all and is whole. */
  Map<String, RoaringBitmap> read(byte[] content) {
    int end = content.length - DIGEST_BYTES;
    if (end < MAGIC.length + DIGEST_BYTES) return null;
    MessageDigest digest = Digests.sha256();
    digest.update(content, 0, end);
    if (!Arrays.equals(digest.digest(), 0, DIGEST_BYTES, content, end, content.length)) return null;
    ByteBuffer body = ByteBuffer.wrap(content, 0, end).order(ByteOrder.LITTLE_ENDIAN);
    if (!Arrays.equals(part(body, MAGIC.length), MAGIC) || !Arrays.equals(part(body, DIGEST_BYTES), name)) return null;
    record File(long dataVersion, String path) {}
    Map<File, byte[]> bitmaps = new HashMap<>();
    for (int left = body.getInt(); left > 0; left--) {
      long dataVersion = body.getLong();
      String path = new String(part(body, body.getInt()), StandardCharsets.UTF_8);
      bitmaps.put(new File(dataVersion, path), part(body, body.getInt()));
    }
    Map<String, RoaringBitmap> found = new HashMap<>();
    for (Entry one : entries) {
      byte[] bytes = bitmaps.get(new File(one.dataVersion, one.path));
      RoaringBitmap hidden = bytes == null ? null : bitmapOf(bytes);
      if (hidden == null || !hidden.isEmpty() && Integer.toUnsignedLong(hidden.last()) >= one.rows) return null;
      found.put(one.place, hidden);
    }
    return found;
  }

  private static byte[] part(ByteBuffer body, int length) {
    byte[] bytes = new byte[length];
    body.get(bytes);
    return bytes;
  }

  private static RoaringBitmap bitmapOf(byte[] bytes) {
    RoaringBitmap found = new RoaringBitmap();
    try {
      found.deserialize(ByteBuffer.wrap(bytes));
    } catch (IOException broken) {
      return null;
    }
    return found;
  }
}
