package io.laketx.spark.write;

import io.laketx.v1.ColumnStats;
import io.laketx.v1.DataFile;
import io.laketx.v1.Table;
import java.math.BigDecimal;
import org.apache.parquet.io.api.Binary;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** The statistics of rows that are in no file of Parquet: those that its footer would have. */
final class ValueBounds {
  private final Table meta;
  private final DataType[] types;
  private final boolean[] areWanted;
  private final long[] nulls;
  private final boolean[] haveNaN; // of such a column nothing is said: readers differ in where it stands
  private final Object[] lows;
  private final Object[] highs;

  ValueBounds(Table meta) {
    this.meta = meta;
    types = Staging.typesOf(meta);
    areWanted = new boolean[types.length];
    for (int at = 0; at < types.length; at++) areWanted[at] = FileBounds.isWanted(meta, at) && !isNested(types[at]);
    nulls = new long[types.length];
    haveNaN = new boolean[types.length];
    lows = new Object[types.length];
    highs = new Object[types.length];
  }

  private static boolean isNested(DataType type) {
    return type instanceof StructType || type instanceof ArrayType || type instanceof MapType;
  }

  void add(InternalRow row) {
    for (int at = 0; at < types.length; at++) {
      if (!areWanted[at]) continue;
      if (row.isNullAt(at)) nulls[at]++;
      else if (!(types[at] instanceof BinaryType)) add(at, WireValues.kept(row.get(at, types[at])));
    }
  }

  private void add(int at, Object value) {
    haveNaN[at] |= FileBounds.isNaN(value);
    if (lows[at] == null || compare(value, lows[at]) < 0) lows[at] = value;
    if (highs[at] == null || compare(value, highs[at]) > 0) highs[at] = value;
  }

  @SuppressWarnings("unchecked")
  private static int compare(Object left, Object right) {
    if (left instanceof UTF8String text) return text.binaryCompare((UTF8String) right);
    return ((Comparable<Object>) left).compareTo(right);
  }

  void tell(DataFile.Builder entry) {
    for (int at = 0; at < types.length; at++) {
      if (!areWanted[at] || haveNaN[at]) continue;
      ColumnStats.Builder found = ColumnStats.newBuilder().setColumnId(meta.getColumns(at).getColumnId());
      found.setNulls(nulls[at]);
      String type = meta.getColumns(at).getType();
      if (lows[at] != null) FileBounds.addBounds(found, type, raw(lows[at]), raw(highs[at]));
      entry.addStats(found);
    }
  }

  /** As Parquet has it. */
  private static Object raw(Object value) {
    if (value instanceof UTF8String text) return Binary.fromConstantByteArray(text.getBytes());
    if (!(value instanceof Decimal number)) return value;
    BigDecimal exact = number.toJavaBigDecimal().setScale(number.scale());
    return Binary.fromConstantByteArray(exact.unscaledValue().toByteArray());
  }
}
