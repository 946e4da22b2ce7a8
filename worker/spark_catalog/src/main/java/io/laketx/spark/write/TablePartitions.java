package io.laketx.spark.write;

import io.laketx.spark.read.LivePartitions;
import io.laketx.spark.read.Snapshot;
import io.laketx.v1.Partition;
import io.laketx.v1.PartitionValue;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Partitions as SHOW PARTITIONS, TRUNCATE TABLE … PARTITION and DROP PARTITION name them: by rows of their values. */
public final class TablePartitions {
  private TablePartitions() {}

  /** Those that are there and have these values in these columns. */
  public static InternalRow[] list(Snapshot snapshot, String[] names, InternalRow values) {
    StructType schema = LivePartitions.schema(snapshot.meta());
    List<InternalRow> found = new ArrayList<>();
    for (Partition one : LivePartitions.of(snapshot, null)) {
      InternalRow row = LivePartitions.row(one, schema);
      if (hasAll(row, schema, names, values)) found.add(row);
    }
    return found.toArray(InternalRow[]::new);
  }

  private static boolean hasAll(InternalRow row, StructType schema, String[] names, InternalRow values) {
    for (int at = 0; at < names.length; at++) {
      int column = schema.fieldIndex(names[at]);
      var type = schema.fields()[column].dataType();
      if (!WireValues.same(row.get(column, type), values.get(at, type))) return false;
    }
    return true;
  }

  public static void truncate(Snapshot snapshot, InternalRow[] partitions) {
    StructField[] columns = LivePartitions.schema(snapshot.meta()).fields();
    Truncation.run(snapshot, Arrays.stream(partitions).map(one -> partition(snapshot, columns, one)).toList());
  }

  private static Partition partition(Snapshot snapshot, StructField[] columns, InternalRow row) {
    Partition.Builder found = Partition.newBuilder();
    for (int at = 0; at < columns.length; at++) {
      String type = WireValues.column(snapshot.meta(), columns[at].name()).getType();
      found.addValues(
          PartitionValue.newBuilder()
              .setColumn(columns[at].name())
              .setValue(WireValues.of(row.get(at, columns[at].dataType()), type)));
    }
    return found.build();
  }
}
