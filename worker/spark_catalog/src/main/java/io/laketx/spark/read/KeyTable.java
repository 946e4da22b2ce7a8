package io.laketx.spark.read;

import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.vectorized.ColumnVector;

/** A set of keys, filled and asked from the rows of batches. */
interface KeyTable {
  /** The key columns of the batch whose rows are meant from here on. */
  void turnTo(ColumnVector[] keys);

  /** Whether the row's key is new. */
  boolean add(int row);

  boolean contains(int row);

  static KeyTable of(DataType[] types) {
    return types.length == 1 && isWhole(types[0]) ? new LongKeys(types[0]) : new ByteKeys(types);
  }

  /** Whether values of the type are whole numbers of at most 64 bits. */
  static boolean isWhole(DataType type) {
    return type instanceof LongType
        || type instanceof IntegerType
        || type instanceof DateType
        || type instanceof TimestampType
        || type instanceof TimestampNTZType
        || type instanceof ShortType
        || type instanceof ByteType
        || type instanceof BooleanType;
  }

  static long wholeAt(ColumnVector column, DataType type, int row) {
    if (type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType) {
      return column.getLong(row);
    }
    if (type instanceof IntegerType || type instanceof DateType) return column.getInt(row);
    if (type instanceof ShortType) return column.getShort(row);
    if (type instanceof ByteType) return column.getByte(row);
    return column.getBoolean(row) ? 1 : 0;
  }

  /** All bits of a number tell in all bits of the result. */
  static long mixed(long value) {
    long found = value * 0x9E3779B97F4A7C15L;
    found ^= found >>> 32;
    found *= 0xD6E8FEB86659FD93L;
    return found ^ (found >>> 32);
  }
}
