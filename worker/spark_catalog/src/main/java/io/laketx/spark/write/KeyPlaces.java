package io.laketx.spark.write;

import io.laketx.spark.WireTypes;
import io.laketx.spark.read.LakePartition;
import io.laketx.spark.read.LakeReader;
import io.laketx.spark.read.LivePartitions;
import io.laketx.spark.read.MetadataColumns;
import io.laketx.spark.read.Plan;
import io.laketx.spark.read.PlannedScan;
import io.laketx.spark.read.Shape;
import io.laketx.spark.read.Shapes;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.Unit;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Table;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * Where keys live at a version, for tasks that write rows with keys across partitions: what a task reads of a bucket number,
 * in all partitions. A row has the columns of a tombstone, and then its partition.
 */
record KeyPlaces(Shape[] shapes, HashMap<Integer, ArrayList<Unit>> units, IndexedPlaces indexed) implements Serializable {

  /**
   * At the version that the snapshot holds. `mayBeMore`: also by the key index, where there is one, which may name places
   * where a key doesn't live; units are those of the files then that it says nothing of.
   */
  static KeyPlaces of(Snapshot snapshot, boolean mayBeMore) {
    Map<Integer, List<LiveEntry>> entries = new HashMap<>();
    for (LiveEntry one : Plan.of(snapshot, snapshot.version(), List.of())) {
      if (one.hasFile()) entries.computeIfAbsent(one.getFile().getBucket(), none -> new ArrayList<>()).add(one);
    }
    StructType columns = columns(snapshot.meta());
    Shapes shapes = new Shapes(snapshot, columns, new Filter[0], Set.of());
    IndexedPlaces indexed = mayBeMore ? IndexedPlaces.of(snapshot, shapes, entries, keyTypes(snapshot.meta(), columns)) : null;
    HashMap<Integer, ArrayList<Unit>> units = new HashMap<>();
    if (indexed == null) {
      entries.forEach(
          (number, files) -> {
            ArrayList<Unit> found = units.computeIfAbsent(number, none -> new ArrayList<>());
            new PlannedScan(snapshot, shapes, files, Map.of()).units().forEach(one -> found.add(one.unit()));
          });
    }
    return new KeyPlaces(shapes.all(), units, indexed);
  }

  private static DataType[] keyTypes(Table meta, StructType columns) {
    return meta.getPrimaryKeyList().stream().map(one -> columns.apply(one).dataType()).toArray(DataType[]::new);
  }

  private static StructType columns(Table meta) {
    StructType all = WireTypes.schemaOf(meta.getColumnsList());
    StructType found = new StructType();
    for (String name : RowChanges.ofRowId(meta)) found = found.add(all.apply(name));
    return found.add(MetadataColumns.PARTITION, LivePartitions.schema(meta));
  }

  LakeReader reader(int bucketNumber) {
    return reader(units.getOrDefault(bucketNumber, new ArrayList<>()));
  }

  LakeReader reader(ArrayList<Unit> some) {
    return new LakeReader(shapes, new LakePartition(some));
  }

  /** What the index says of keys of a bucket number. */
  IndexedPlaces.Images find(int bucketNumber, long[] hashes) {
    return indexed.find(shapes, bucketNumber, hashes);
  }
}
