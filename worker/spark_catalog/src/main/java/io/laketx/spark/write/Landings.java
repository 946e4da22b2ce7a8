package io.laketx.spark.write;

import com.google.protobuf.InvalidProtocolBufferException;
import io.laketx.spark.WireTypes;
import io.laketx.spark.read.LakePartition;
import io.laketx.spark.read.LakeReader;
import io.laketx.spark.read.LivePartitions;
import io.laketx.spark.read.PartitionKey;
import io.laketx.spark.read.Plan;
import io.laketx.spark.read.PlannedScan;
import io.laketx.spark.read.Shape;
import io.laketx.spark.read.Shapes;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.Unit;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Limit;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Partition;
import io.laketx.v1.Predicate;
import io.laketx.v1.Read;
import io.laketx.v1.Table;
import io.laketx.v1.Value;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Rows that came into a partition from another one: none may take the place of a row that is there. The check looks at the
 * version that the statement reads; a later writer of that key conflicts with it.
 */
final class Landings {
  private static final int PARTITIONS_MAX = Limit.LIMIT_PARTITIONS_NAMED_VALUE; // of more of them, all partitions are looked at

  private Landings() {}

  private record Bucket(Map<String, Value> partition, int number) {}

  /** Keys, and what is read of the bucket that they came into. */
  private record Look(List<Unit> units, Moves.Landed landed) implements Serializable {}

  /** What was read for it, which the service is told. */
  static List<Read> check(Snapshot snapshot, List<Moves.Landed> landed) {
    if (landed.isEmpty()) return List.of();
    Map<Map<String, Value>, Partition> near = new LinkedHashMap<>();
    for (Moves.Landed one : landed) near.putIfAbsent(PartitionKey.of(partition(one)), partition(one));
    boolean areFew = near.size() <= PARTITIONS_MAX;
    List<Partition> partitions = areFew ? List.copyOf(near.values()) : List.of();
    look(snapshot, landed, Plan.of(snapshot, snapshot.version(), partitions));
    if (!snapshot.meta().getRules().getCountsKeyLookups()) return List.of();
    if (areFew) return List.of(Read.newBuilder().addAllPartitions(partitions).build());
    return List.of(Read.newBuilder().setPredicate(Predicate.newBuilder().setLiteral(true)).build());
  }

  private static void look(Snapshot snapshot, List<Moves.Landed> landed, List<LiveEntry> entries) {
    Map<Bucket, List<LiveEntry>> there = new HashMap<>();
    for (LiveEntry one : entries) {
      if (!one.hasFile()) continue;
      Bucket bucket = new Bucket(PartitionKey.of(one.getFile().getPartition()), one.getFile().getBucket());
      there.computeIfAbsent(bucket, none -> new ArrayList<>()).add(one);
    }
    StructType key = key(snapshot.meta());
    Shapes shapes = new Shapes(snapshot, key, new Filter[0], Set.of());
    List<Look> looks = new ArrayList<>();
    for (Moves.Landed one : landed) {
      List<LiveEntry> files = there.get(new Bucket(PartitionKey.of(partition(one)), one.bucket()));
      if (files == null) continue;
      PlannedScan plan = new PlannedScan(snapshot, shapes, files, Map.of());
      looks.add(new Look(plan.units().stream().map(PlannedScan.Placed::unit).toList(), one));
    }
    if (looks.isEmpty()) return;
    Shape[] shown = shapes.all();
    DataType[] types = Arrays.stream(key.fields()).map(StructField::dataType).toArray(DataType[]::new);
    JavaSparkContext spark = JavaSparkContext.fromSparkContext(ParquetOut.session().sparkContext());
    spark.parallelize(looks, looks.size()).map(look -> taken(look, shown, types)).collect().stream()
        .filter(Objects::nonNull)
        .findFirst()
        .ifPresent(
            row -> {
              throw LakeException.invalid(
                  "KEY_EXISTS", Moves.keyExists(snapshot.meta(), text(snapshot, row, types), "another row has that key"));
            });
  }

  /** In an executor: a key that is there already, or null. */
  private static Moves.Landed taken(Look look, Shape[] shapes, DataType[] types) {
    Set<UnsafeRow> landed = new HashSet<>();
    for (byte[] one : look.landed.keys()) landed.add(row(one, types));
    UnsafeProjection toKey = UnsafeProjection.create(types);
    try (LakeReader reader = new LakeReader(shapes, new LakePartition(look.units))) {
      while (reader.next()) {
        ColumnarBatch batch = reader.get();
        for (Iterator<InternalRow> rows = batch.rowIterator(); rows.hasNext(); ) {
          UnsafeRow key = toKey.apply(rows.next());
          if (!landed.contains(key)) continue;
          byte[][] found = {key.copy().getBytes()};
          return new Moves.Landed(look.landed.partition(), look.landed.bucket(), found);
        }
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return null;
  }

  private static StructType key(Table meta) {
    StructType columns = WireTypes.schemaOf(meta.getColumnsList());
    return new StructType(meta.getPrimaryKeyList().stream().map(columns::apply).toArray(StructField[]::new));
  }

  private static UnsafeRow row(byte[] bytes, DataType[] types) {
    UnsafeRow found = new UnsafeRow(types.length);
    found.pointTo(bytes, bytes.length);
    return found;
  }

  private static String text(Snapshot snapshot, Moves.Landed row, DataType[] types) {
    List<String> found = new ArrayList<>();
    StructType schema = LivePartitions.schema(snapshot.meta());
    add(found, schema, LivePartitions.row(partition(row), schema));
    add(found, key(snapshot.meta()), row(row.keys()[0], types));
    return String.join(", ", found);
  }

  private static void add(List<String> found, StructType columns, InternalRow row) {
    for (int at = 0; at < columns.length(); at++) {
      DataType type = columns.apply(at).dataType();
      String value = row.isNullAt(at) ? "NULL" : WireValues.text(row.get(at, type), type);
      found.add(columns.apply(at).name() + "=" + value);
    }
  }

  private static Partition partition(Moves.Landed landed) {
    try {
      return Partition.parseFrom(landed.partition());
    } catch (InvalidProtocolBufferException error) {
      throw new IllegalStateException(error);
    }
  }
}
