package io.laketx.spark.read;

import io.laketx.v1.Partition;
import io.laketx.v1.PartitionValue;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** What a join has found out by the time its larger side is read: the values of partition columns that can match. */
final class RuntimeFilters {
  private final Map<String, DataType> types = new HashMap<>();
  private final Map<String, List<Set<Object>>> wanted = new HashMap<>();

  RuntimeFilters(StructType columns, Filter[] filters) {
    for (String name : columns.fieldNames()) types.put(name, columns.apply(name).dataType());
    for (Filter one : filters) {
      if (one instanceof In in) add(in.attribute(), in.values());
      if (one instanceof EqualTo equal) add(equal.attribute(), new Object[] {equal.value()});
    }
  }

  private void add(String attribute, Object[] values) {
    String name = Conditions.columnOf(attribute);
    DataType type = name == null ? null : types.get(name);
    if (type == null || type instanceof BinaryType) return;
    Set<Object> known = new HashSet<>();
    for (Object one : values) {
      if (one != null) known.add(SparkInternals.toCatalyst(one, type)); // what is compared with NULL matches nothing
    }
    wanted.computeIfAbsent(name, none -> new ArrayList<>()).add(known);
  }

  /** Whether rows of the partition can match. */
  boolean mayMatch(Partition partition) {
    for (PartitionValue one : partition.getValuesList()) {
      List<Set<Object>> known = wanted.get(one.getColumn());
      if (known == null) continue;
      Object value = PartitionValues.inRows(one.getValue(), types.get(one.getColumn()));
      for (Set<Object> values : known) {
        if (!values.contains(value)) return false;
      }
    }
    return true;
  }
}
