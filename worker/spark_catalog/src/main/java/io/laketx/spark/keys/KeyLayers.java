package io.laketx.spark.keys;

import java.io.IOException;
import java.io.Serializable;
import java.util.HashMap;
import java.util.List;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** The layers of a table's key index, by bucket number: their paths below the table's folder. */
public record KeyLayers(String tableFolder, String facts, HashMap<Integer, List<String>> paths) implements Serializable {
  private static final long HEADS_BYTES = 32L << 20;
  private static final int FILE_BYTES = 200; // of a remembered head, for each file
  private static final Remembered<KeyLayer> HEADS =
      new Remembered<>(HEADS_BYTES, one -> 16L * one.firstHashes().length + (long) FILE_BYTES * one.files().length);

  public List<String> paths(int bucket) {
    return paths.getOrDefault(bucket, List.of());
  }

  /** Fails where the layer is gone or damaged. */
  public KeyLayer head(FileSystem storage, int bucket, String path) throws IOException {
    Path whole = new Path(tableFolder, path);
    KeyLayer found = HEADS.find(whole.toString());
    if (found == null) {
      try (FSDataInputStream in = storage.open(whole)) {
        found = KeyLayer.of(facts, path, in);
      }
      HEADS.keep(whole.toString(), found);
    }
    if (found.bucket() != bucket) throw new DamagedIndexException(path);
    return found;
  }

  /** `hashes` are different ones, and ascend as numbers without a sign. */
  public void find(FileSystem storage, KeyLayer layer, long[] hashes, KeyLayer.Images found) throws IOException {
    try (FSDataInputStream in = storage.open(new Path(tableFolder, layer.path()))) {
      layer.find(in, hashes, found);
    }
  }
}
