package io.laketx.spark.read;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** The ids of a file's rows: its own where it has one, or else the first one's and the position. */
final class IdsOfRows extends ColumnVector {
  private final ColumnVector own;
  private final ColumnVector index;
  private final long first;

  /** `own` is null where the file has none. */
  IdsOfRows(ColumnVector own, ColumnVector index, long first) {
    super(DataTypes.LongType);
    this.own = own;
    this.index = index;
    this.first = first;
  }

  @Override
  public long getLong(int row) {
    return own == null || own.isNullAt(row) ? first + index.getLong(row) : own.getLong(row);
  }

  @Override
  public void close() {}

  @Override
  public void closeIfFreeable() {}

  @Override
  public boolean hasNull() {
    return false;
  }

  @Override
  public int numNulls() {
    return 0;
  }

  @Override
  public boolean isNullAt(int row) {
    return false;
  }

  @Override
  public boolean getBoolean(int row) {
    throw otherType();
  }

  @Override
  public byte getByte(int row) {
    throw otherType();
  }

  @Override
  public short getShort(int row) {
    throw otherType();
  }

  @Override
  public int getInt(int row) {
    throw otherType();
  }

  @Override
  public float getFloat(int row) {
    throw otherType();
  }

  @Override
  public double getDouble(int row) {
    throw otherType();
  }

  @Override
  public ColumnarArray getArray(int row) {
    throw otherType();
  }

  @Override
  public ColumnarMap getMap(int row) {
    throw otherType();
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    throw otherType();
  }

  @Override
  public UTF8String getUTF8String(int row) {
    throw otherType();
  }

  @Override
  public byte[] getBinary(int row) {
    throw otherType();
  }

  @Override
  public ColumnVector getChild(int at) {
    throw otherType();
  }

  private static UnsupportedOperationException otherType() {
    return new UnsupportedOperationException("row ids are bigint");
  }
}
