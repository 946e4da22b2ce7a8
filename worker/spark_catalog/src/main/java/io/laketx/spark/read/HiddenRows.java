package io.laketx.spark.read;

import io.laketx.spark.keys.Digests;
import io.laketx.spark.keys.Remembered;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.List;
import org.roaringbitmap.RoaringBitmap;

/**
 * The rows that newer files hide in the files of a bucket, remembered by the JVM that found them.
 *
 * <p>Files never change, so neither does what some of them hide in another. The next query of the same files reads no
 * keys.
 */
final class HiddenRows {
  private static final HiddenRows SHARED = new HiddenRows(Math.min(Runtime.getRuntime().maxMemory() / 50, 256L << 20));
  private static final int ENTRY_BYTES = 256;

  private final Remembered<RoaringBitmap> known;

  HiddenRows(long most) {
    known = new Remembered<>(most, one -> one.getLongSizeInBytes() + ENTRY_BYTES);
  }

  static HiddenRows shared() {
    return SHARED;
  }

  /** Names what files hide in another: their paths, the newest first, and its own. */
  static String nameOf(List<String> newer, String path) {
    MessageDigest digest = Digests.sha256();
    for (String one : newer) add(digest, one);
    add(digest, path);
    return HexFormat.of().formatHex(digest.digest());
  }

  private static void add(MessageDigest digest, String path) {
    digest.update(path.getBytes(StandardCharsets.UTF_8));
    digest.update((byte) 0);
  }

  /** Positions in the file, not to be changed; null: they aren't known. */
  RoaringBitmap find(String name) {
    return known.find(name);
  }

  void keep(String name, RoaringBitmap positions) {
    positions.runOptimize();
    positions.trim();
    known.keep(name, positions);
  }
}
