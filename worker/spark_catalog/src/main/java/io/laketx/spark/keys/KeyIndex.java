package io.laketx.spark.keys;

import com.google.protobuf.InvalidProtocolBufferException;
import io.laketx.v1.Column;
import io.laketx.v1.FileRef;
import io.laketx.v1.KeyFiles;
import io.laketx.v1.Limit;
import io.laketx.v1.Partition;
import io.laketx.v1.Table;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The key index of a table, as of its newest coverage: which files may have an image of a key. Whoever finds a part of it
 * gone or damaged does without.
 */
public final class KeyIndex {
  private static final Logger LOG = LoggerFactory.getLogger(KeyIndex.class);
  private static final int FILES_MAX = Limit.LIMIT_KEY_FILES_VALUE;
  private static final int COVERAGES = 64;
  private static final Remembered<KeyCoverage> KNOWN = new Remembered<>(COVERAGES, one -> 1);

  private final FileSystem storage;
  private final int buckets;
  private final KeyCoverage coverage;
  private final KeyLayers layers;

  private KeyIndex(FileSystem storage, int buckets, KeyCoverage coverage, KeyLayers layers) {
    this.storage = storage;
    this.buckets = buckets;
    this.coverage = coverage;
    this.layers = layers;
  }

  /** Null where there is none, or it can't be read. */
  public static KeyIndex of(FileSystem storage, String tableFolder, Table meta) {
    String facts = factsOf(meta);
    Path folder = new Path(tableFolder, "_keys/" + facts);
    try {
      Path newest = null;
      for (FileStatus one : storage.listStatus(folder, path -> path.getName().endsWith(KeyCoverage.SUFFIX))) {
        if (newest == null || one.getPath().getName().compareTo(newest.getName()) > 0) newest = one.getPath();
      }
      if (newest == null) return null;
      KeyCoverage coverage = KNOWN.find(newest.toString());
      if (coverage == null) {
        try (FSDataInputStream in = storage.open(newest)) {
          coverage = KeyCoverage.of(facts, newest.toString(), in.readAllBytes());
        }
        KNOWN.keep(newest.toString(), coverage);
      }
      KeyLayers layers = new KeyLayers(tableFolder, facts, new HashMap<>(coverage.layers()));
      return new KeyIndex(storage, meta.getBuckets(), coverage, layers);
    } catch (IOException none) {
      LOG.debug("{} has no key index that can be read: {}", meta.getName(), none.getMessage());
      return null;
    }
  }

  /** The layers, for whoever knows which files are live. */
  public KeyLayers layers() {
    return layers;
  }

  /** What the hashes follow from, as the name of a folder. */
  private static String factsOf(Table meta) {
    Map<String, Integer> ids = new HashMap<>();
    for (Column one : meta.getColumnsList()) ids.put(one.getName(), one.getColumnId());
    String key = meta.getPrimaryKeyList().stream().map(one -> ids.get(one).toString()).collect(Collectors.joining(" "));
    String text = meta.getTableId() + "\n" + key + "\n" + meta.getBuckets();
    byte[] digest = Digests.sha256().digest(text.getBytes(StandardCharsets.UTF_8));
    return HexFormat.of().formatHex(digest, 0, 16);
  }

  /** What the service needs to plan a read of the keys with these hashes; null where they are in too many files. */
  public KeyFiles filesOf(long[] hashes) {
    Map<Integer, long[]> byBucket =
        Arrays.stream(hashes)
            .boxed()
            .collect(
                Collectors.groupingBy(
                    one -> KeyHash.bucket(one, buckets),
                    TreeMap::new,
                    Collectors.collectingAndThen(Collectors.toList(), KeyIndex::ascending)));
    Map<String, FileRef> found = new LinkedHashMap<>();
    try {
      for (Map.Entry<Integer, long[]> one : byBucket.entrySet()) {
        addFiles(one.getKey(), one.getValue(), found);
        if (found.size() > FILES_MAX) return null;
      }
    } catch (IOException gone) {
      LOG.debug("a key index can't be read: {}", gone.getMessage());
      return null;
    }
    return KeyFiles.newBuilder()
        .setHistoryEpoch(coverage.history())
        .setVersion(coverage.version())
        .addAllBuckets(byBucket.keySet())
        .addAllFiles(found.values())
        .build();
  }

  private static long[] ascending(List<Long> hashes) {
    return hashes.stream().distinct().sorted(Long::compareUnsigned).mapToLong(Long::longValue).toArray();
  }

  private void addFiles(int bucket, long[] hashes, Map<String, FileRef> found) throws IOException {
    for (String path : layers.paths(bucket)) {
      KeyLayer layer = layers.head(storage, bucket, path);
      boolean[] has = new boolean[layer.files().length];
      layers.find(storage, layer, hashes, (hash, file, isTombstone) -> has[file] = true);
      for (int at = 0; at < has.length; at++) {
        if (has[at]) add(bucket, layer.files()[at], found);
      }
    }
    for (KeyLayer.File one : coverage.others().getOrDefault(bucket, List.of())) add(bucket, one, found);
  }

  private static void add(int bucket, KeyLayer.File file, Map<String, FileRef> found) throws InvalidProtocolBufferException {
    Partition partition = Partition.parseFrom(file.partition());
    found.put(file.path(), FileRef.newBuilder().setPath(file.path()).setPartition(partition).setBucket(bucket).build());
  }
}
