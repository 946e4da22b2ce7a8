package io.laketx.spark.write;

import io.laketx.spark.keys.KeyHash;
import io.laketx.spark.keys.KeyIndex;
import io.laketx.spark.keys.KeyLayer;
import io.laketx.spark.keys.KeyLayers;
import io.laketx.spark.read.LivePartitions;
import io.laketx.spark.read.PartitionKey;
import io.laketx.spark.read.PlannedScan;
import io.laketx.spark.read.Shape;
import io.laketx.spark.read.Shapes;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.Unit;
import io.laketx.v1.DataFile;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Partition;
import io.laketx.v1.Value;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.IntConsumer;
import org.apache.hadoop.fs.FileSystem;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Where keys live by the table's key index, and more: a key with the same hash may live there instead, or none any more.
 * That does no harm to who leaves tombstones, for a tombstone of a key that isn't there hides nothing.
 */
final class IndexedPlaces implements Serializable {
  private static final long serialVersionUID = 1;
  private static final Logger LOG = LoggerFactory.getLogger(IndexedPlaces.class);

  private final KeyLayers layers;
  private final HashMap<Integer, HashMap<String, LiveFile>> files = new HashMap<>(); // by bucket number and path
  private final ArrayList<InternalRow> partitions = new ArrayList<>();
  private final boolean areExact;

  /** `partition`: which one of the partitions; `alone`: how it is read, whatever hides its rows. */
  private record LiveFile(long version, int partition, boolean mayBeCovered, Unit alone) implements Serializable {}

  private IndexedPlaces(KeyLayers layers, boolean areExact) {
    this.layers = layers;
    this.areExact = areExact;
  }

  /** Null where the table has no index that can be used. */
  static IndexedPlaces of(Snapshot snapshot, Shapes shapes, Map<Integer, List<LiveEntry>> entries, DataType[] keys) {
    KeyIndex index = snapshot.keyIndex();
    if (index == null) return null;
    IndexedPlaces found = new IndexedPlaces(index.layers(), KeyHash.isExact(keys));
    StructType schema = LivePartitions.schema(snapshot.meta());
    Map<Map<String, Value>, Integer> numbers = new HashMap<>();
    entries.forEach(
        (bucket, some) -> {
          HashMap<String, LiveFile> its = found.files.computeIfAbsent(bucket, none -> new HashMap<>());
          for (LiveEntry one : some) {
            DataFile file = one.getFile();
            Partition partition = file.getPartition();
            int number = numbers.computeIfAbsent(PartitionKey.of(partition), none -> numbers.size());
            if (number == found.partitions.size()) found.partitions.add(LivePartitions.row(partition, schema));
            boolean mayBeCovered = !file.getInlined() && !file.getExternal();
            Unit alone = new PlannedScan(snapshot, shapes, List.of(one), Map.of()).units().get(0).unit();
            its.put(file.getPath(), new LiveFile(one.getDataVersion(), number, mayBeCovered, alone));
          }
        });
    return found;
  }

  InternalRow partition(int number) {
    return partitions.get(number);
  }

  int partitionCount() {
    return partitions.size();
  }

  /** Looks up keys of a bucket number by their hashes, which are different ones, and ascend as numbers without a sign. */
  Images find(Shape[] shapes, int bucket, long[] hashes) {
    Images found = new Images(hashes.length);
    Map<String, LiveFile> live = files.get(bucket);
    if (live == null) return found;
    Set<String> left = new HashSet<>();
    live.forEach(
        (path, file) -> {
          if (file.mayBeCovered) left.add(path);
          else found.others.add(file.alone);
        });
    for (String path : layers.paths(bucket)) {
      try {
        FileSystem storage = shapes[0].storageOf(layers.tableFolder());
        KeyLayer layer = layers.head(storage, bucket, path);
        LiveFile[] covered = new LiveFile[layer.files().length];
        for (int at = 0; at < covered.length; at++) {
          String its = layer.files()[at].path();
          if (left.contains(its)) covered[at] = live.get(its);
        }
        layers.find(storage, layer, hashes, (hash, file, isTombstone) -> found.add(hash, covered[file], isTombstone));
        for (KeyLayer.File one : layer.files()) left.remove(one.path());
      } catch (IOException gone) {
        LOG.debug("the files of a layer are read: {}", gone.getMessage());
      }
    }
    for (String path : left) found.others.add(live.get(path).alone);
    return found;
  }

  /** What layers tell of keys, and what has to be read because none covers it. */
  final class Images {
    private final int[] last; // of each hash; -1: none
    private int[] before = new int[16];
    private boolean[] areTombstones = new boolean[16];
    private final ArrayList<LiveFile> its = new ArrayList<>();
    private final ArrayList<Unit> others = new ArrayList<>();

    private Images(int hashes) {
      last = new int[hashes];
      Arrays.fill(last, -1);
    }

    private void add(int hash, LiveFile file, boolean isTombstone) {
      if (file == null) return;
      int at = its.size();
      if (at == before.length) {
        before = Arrays.copyOf(before, 2 * at);
        areTombstones = Arrays.copyOf(areTombstones, 2 * at);
      }
      before[at] = last[hash];
      areTombstones[at] = isTombstone;
      its.add(file);
      last[hash] = at;
    }

    ArrayList<Unit> others() {
      return others;
    }

    /** Tells the numbers of the partitions where a key with that hash lives. */
    void forEach(int hash, IntConsumer partition) {
      for (int at = last[hash]; at >= 0; at = before[at]) {
        if (!areTombstones[at] && !(areExact && isHidden(hash, its.get(at)))) partition.accept(its.get(at).partition);
      }
    }

    private boolean isHidden(int hash, LiveFile file) {
      for (int at = last[hash]; at >= 0; at = before[at]) {
        LiveFile other = its.get(at);
        if (other.partition == file.partition && other.version > file.version) return true;
      }
      return false;
    }
  }
}
