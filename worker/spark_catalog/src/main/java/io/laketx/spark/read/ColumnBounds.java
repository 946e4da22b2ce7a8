package io.laketx.spark.read;

import io.laketx.spark.WireTypes;
import io.laketx.v1.Column;
import io.laketx.v1.ColumnStats;
import io.laketx.v1.DataFile;
import io.laketx.v1.PartitionValue;
import io.laketx.v1.Value;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;

/**
 * Bounds of the columns that are read, over all files of a plan, for Spark's optimiser. No row lies outside of them;
 * rows that are hidden only make them wider than need be.
 *
 * <p>Floats have none: a file may hold NaN outside of its bounds, and Spark takes NaN for the largest value. Nor have
 * types for which Spark's estimates know none.
 */
final class ColumnBounds {
  private final Snapshot snapshot;
  private final Map<Integer, OfColumn> columns = new LinkedHashMap<>(); // by id
  private final Map<String, OfColumn> partitions = new HashMap<>(); // those of the same that rows are partitioned by
  private long rows; // in all files, hidden ones too

  ColumnBounds(Snapshot snapshot, StructType required) {
    this.snapshot = snapshot;
    Set<String> wanted = Set.of(required.fieldNames());
    for (Column one : snapshot.meta().getColumnsList()) {
      DataType type = wanted.contains(one.getName()) ? WireTypes.typeOf(one.getType()) : null;
      if (type == null || !(isOrdered(type) || isCounted(type))) continue;
      OfColumn column = new OfColumn(one.getName(), type);
      columns.put(one.getColumnId(), column);
      if (snapshot.meta().getPartitionColumnsList().contains(one.getName())) partitions.put(one.getName(), column);
    }
  }

  void add(DataFile file) {
    rows += file.getRows();
    Map<OfColumn, Boolean> seen = new HashMap<>();
    for (PartitionValue one : file.getPartition().getValuesList()) {
      OfColumn column = partitions.get(one.getColumn());
      if (column == null) continue;
      seen.put(column, true);
      column.addValue(one.getValue(), file.getRows());
    }
    for (ColumnStats one : file.getStatsList()) {
      OfColumn column = columns.get(one.getColumnId());
      if (column != null && seen.put(column, true) == null) column.add(one, file.getRows());
    }
    if (seen.size() == columns.size()) return;
    columns.forEach(
        (id, column) -> {
          if (seen.containsKey(column)) return;
          if (isWrittenWith(file, id)) column.addUnknown();
          else column.addNulls(file.getRows());
        });
  }

  /** A file that is older than a column has NULL there. */
  private boolean isWrittenWith(DataFile file, int columnId) {
    if (file.getExternal()) return true; // what it has was looked up when it came
    List<Column> then = snapshot.columnsOf(file);
    return then == null || then.stream().anyMatch(one -> one.getColumnId() == columnId);
  }

  /** Of `shown` rows at most; what is not known is left out. */
  Map<NamedReference, ColumnStatistics> known(long shown) {
    Map<NamedReference, ColumnStatistics> found = new LinkedHashMap<>();
    List<String> key = snapshot.meta().getPrimaryKeyList();
    boolean isUnique = key.size() == 1 && key.containsAll(snapshot.meta().getPartitionColumnsList());
    for (OfColumn one : columns.values()) {
      boolean isKey = isUnique && key.get(0).equals(one.name);
      ColumnStatistics stats = one.known(rows, shown, isKey);
      if (stats != null) found.put(Expressions.column("`" + one.name.replace("`", "``") + "`"), stats);
    }
    return found;
  }

  /** Types for whose bounds Spark has a use. */
  private static boolean isOrdered(DataType type) {
    return type instanceof LongType
        || type instanceof IntegerType
        || type instanceof ShortType
        || type instanceof ByteType
        || type instanceof DecimalType
        || type instanceof DateType
        || type instanceof TimestampType
        || type instanceof BooleanType;
  }

  /** Types of which Spark asks how many are NULL, and whose bounds it doesn't need. */
  private static boolean isCounted(DataType type) {
    return type instanceof StringType || type instanceof BinaryType;
  }

  private static final class OfColumn {
    private final String name;
    private final DataType type;
    private boolean isBounded = true;
    private boolean isCounted = true;
    private long nulls;
    private Object low;
    private Object high;

    private OfColumn(String name, DataType type) {
      this.name = name;
      this.type = type;
    }

    private void add(ColumnStats stats, long fileRows) {
      if (stats.hasNulls()) nulls += stats.getNulls();
      else isCounted = false;
      if (stats.hasNulls() && stats.getNulls() >= fileRows) return;
      Object least = stats.hasMin() && !stats.getTruncated() ? value(stats.getMin()) : null;
      Object most = stats.hasMax() && !stats.getTruncated() ? value(stats.getMax()) : null;
      widen(least, most);
    }

    private void addValue(Value one, long fileRows) {
      if (one.getKindCase() == Value.KindCase.NULL || one.getKindCase() == Value.KindCase.KIND_NOT_SET) {
        nulls += fileRows;
        return;
      }
      Object found = value(one);
      widen(found, found);
    }

    private void addNulls(long fileRows) {
      nulls += fileRows;
    }

    private void addUnknown() {
      isBounded = false;
      isCounted = false;
    }

    private void widen(Object least, Object most) {
      if (least == null || most == null || compare(least, most) > 0) {
        isBounded = false;
        return;
      }
      if (low == null || compare(least, low) < 0) low = least;
      if (high == null || compare(most, high) > 0) high = most;
    }

    @SuppressWarnings("unchecked")
    private static int compare(Object one, Object other) {
      return ((Comparable<Object>) one).compareTo(other);
    }

    /** As Spark keeps it in rows; null where it is of another type than the column. */
    private Object value(Value given) {
      boolean fits =
          switch (given.getKindCase()) {
            case BOOLEAN -> type instanceof BooleanType;
            case INTEGER -> isOrdered(type)
                && !(type instanceof BooleanType || type instanceof DateType || type instanceof TimestampType);
            case DECIMAL -> type instanceof DecimalType;
            case DATE -> type instanceof DateType;
            case TIMESTAMP_US -> type instanceof TimestampType;
            case TEXT -> type instanceof StringType;
            default -> false;
          };
      return fits ? PartitionValues.inRows(given, type) : null;
    }

    /** Spark takes a number without bounds for one that is NULL everywhere, so such a column is not mentioned. */
    private ColumnStatistics known(long rows, long shown, boolean isKey) {
      boolean isBoundedHere = isBounded && low != null;
      boolean isAllNull = isBounded && isCounted && low == null && nulls >= rows;
      if (isOrdered(type) ? !isBoundedHere && !isAllNull : !isCounted && !isBoundedHere) return null;
      return new Known(
          Optional.ofNullable(isBoundedHere ? low : null),
          Optional.ofNullable(isBoundedHere ? high : null),
          isCounted ? OptionalLong.of(Math.min(nulls, shown)) : OptionalLong.empty(),
          isKey ? OptionalLong.of(shown) : OptionalLong.empty());
    }
  }

  private record Known(Optional<Object> min, Optional<Object> max, OptionalLong nullCount, OptionalLong distinctCount)
      implements ColumnStatistics {}
}
