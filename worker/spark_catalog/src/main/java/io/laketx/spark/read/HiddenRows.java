package io.laketx.spark.read;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.roaringbitmap.RoaringBitmap;

/**
 * The rows that newer files hide in the files of a bucket, remembered by the JVM that found them.
 *
 * <p>Files never change, so neither does what some of them hide in another. The next query of the same files reads no
 * keys. The least recently used are forgotten first.
 */
final class HiddenRows {
  private static final HiddenRows SHARED = new HiddenRows(Math.min(Runtime.getRuntime().maxMemory() / 50, 256L << 20));
  private static final int ENTRY_BYTES = 256;

  private final Map<String, RoaringBitmap> known = new LinkedHashMap<>(16, 0.75f, true);
  private final long most;
  private long held;

  HiddenRows(long most) {
    this.most = most;
  }

  static HiddenRows shared() {
    return SHARED;
  }

  /** Names what files hide in another: their paths, the newest first, and its own. */
  static String nameOf(List<String> newer, String path) {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      for (String one : newer) add(digest, one);
      add(digest, path);
      return HexFormat.of().formatHex(digest.digest());
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException(error);
    }
  }

  private static void add(MessageDigest digest, String path) {
    digest.update(path.getBytes(StandardCharsets.UTF_8));
    digest.update((byte) 0);
  }

  /** Positions in the file, not to be changed; null: they aren't known. */
  synchronized RoaringBitmap find(String name) {
    return known.get(name);
  }

  synchronized void keep(String name, RoaringBitmap positions) {
    positions.runOptimize();
    positions.trim();
    long bytes = sizeOf(positions);
    if (bytes > most) return;
    RoaringBitmap before = known.put(name, positions);
    held += bytes - (before == null ? 0 : sizeOf(before));
    for (Iterator<RoaringBitmap> oldest = known.values().iterator(); held > most; ) {
      held -= sizeOf(oldest.next());
      oldest.remove();
    }
  }

  private static long sizeOf(RoaringBitmap positions) {
    return positions.getLongSizeInBytes() + ENTRY_BYTES;
  }
}
