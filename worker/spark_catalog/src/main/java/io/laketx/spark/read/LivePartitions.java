package io.laketx.spark.read;

import io.laketx.spark.WireTypes;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Partition;
import io.laketx.v1.Predicate;
import io.laketx.v1.Table;
import io.laketx.v1.Value;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The partitions of a snapshot that have files. */
public final class LivePartitions {
  private LivePartitions() {}

  /** The partition columns, in their order. */
  public static StructType schema(Table meta) {
    StructType columns = WireTypes.schemaOf(meta.getColumnsList());
    return new StructType(
        meta.getPartitionColumnsList().stream().map(columns::apply).toArray(StructField[]::new));
  }

  /** Those that the service doesn't rule out; null rules out none. */
  public static Collection<Partition> of(Snapshot snapshot, Predicate condition) {
    Map<Map<String, Value>, Partition> found = new LinkedHashMap<>();
    for (LiveEntry one : Plan.of(snapshot, condition, null, false, null)) {
      if (one.hasFile()) found.putIfAbsent(PartitionKey.of(one.getFile().getPartition()), one.getFile().getPartition());
    }
    return found.values();
  }

  /** A partition's values as Spark keeps them in rows. */
  public static InternalRow row(Partition partition, StructType schema) {
    Map<String, Value> values = PartitionKey.of(partition);
    Object[] found = new Object[schema.length()];
    for (int at = 0; at < found.length; at++) {
      Value value = values.get(schema.fields()[at].name());
      found[at] = value == null ? null : PartitionValues.inRows(value, schema.fields()[at].dataType());
    }
    return new GenericInternalRow(found);
  }
}
