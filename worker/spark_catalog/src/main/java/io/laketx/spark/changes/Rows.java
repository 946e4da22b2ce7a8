package io.laketx.spark.changes;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Whether two images of a row are the same: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0. */
final class Rows {
  private Rows() {}

  /** Either may be null: there is no such row. */
  static boolean differ(UnsafeRow one, UnsafeRow other, StructType columns) {
    if (one == null || other == null) return one != other;
    return !one.equals(other) && !same(one, other, columns);
  }

  private static boolean same(InternalRow one, InternalRow other, StructType type) {
    StructField[] fields = type.fields();
    for (int at = 0; at < fields.length; at++) {
      DataType kind = fields[at].dataType();
      if (one.isNullAt(at) || other.isNullAt(at)) {
        if (one.isNullAt(at) != other.isNullAt(at)) return false;
      } else if (!same(one.get(at, kind), other.get(at, kind), kind)) {
        return false;
      }
    }
    return true;
  }

  private static boolean same(Object one, Object other, DataType type) {
    if (type instanceof DoubleType) return same((Double) one, (Double) other);
    if (type instanceof FloatType) return same(((Float) one).doubleValue(), ((Float) other).doubleValue());
    if (type instanceof BinaryType) return Arrays.equals((byte[]) one, (byte[]) other);
    if (type instanceof StructType struct) return same((InternalRow) one, (InternalRow) other, struct);
    if (type instanceof ArrayType array) return same((ArrayData) one, (ArrayData) other, array.elementType());
    if (type instanceof MapType map) {
      MapData mine = (MapData) one;
      MapData theirs = (MapData) other;
      return same(mine.keyArray(), theirs.keyArray(), map.keyType())
          && same(mine.valueArray(), theirs.valueArray(), map.valueType());
    }
    return one.equals(other);
  }

  private static boolean same(double one, double other) {
    return one == other || (Double.isNaN(one) && Double.isNaN(other));
  }

  private static boolean same(ArrayData one, ArrayData other, DataType type) {
    if (one.numElements() != other.numElements()) return false;
    for (int at = 0; at < one.numElements(); at++) {
      if (one.isNullAt(at) || other.isNullAt(at)) {
        if (one.isNullAt(at) != other.isNullAt(at)) return false;
      } else if (!same(one.get(at, type), other.get(at, type), type)) {
        return false;
      }
    }
    return true;
  }
}
