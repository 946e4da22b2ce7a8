package io.laketx.spark.read;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column with one value, as Spark keeps it in rows, in every row; null: NULL. */
final class OneValue extends ColumnVector {
  private final Object value;

  OneValue(Object value, DataType type) {
    super(type);
    this.value = value;
  }

  @Override
  public void close() {}

  @Override
  public void closeIfFreeable() {}

  @Override
  public boolean hasNull() {
    return value == null;
  }

  @Override
  public int numNulls() {
    return value == null ? Integer.MAX_VALUE : 0;
  }

  @Override
  public boolean isNullAt(int row) {
    return value == null;
  }

  @Override
  public boolean getBoolean(int row) {
    return (Boolean) value;
  }

  @Override
  public byte getByte(int row) {
    return ((Number) value).byteValue();
  }

  @Override
  public short getShort(int row) {
    return ((Number) value).shortValue();
  }

  @Override
  public int getInt(int row) {
    return ((Number) value).intValue();
  }

  @Override
  public long getLong(int row) {
    return ((Number) value).longValue();
  }

  @Override
  public float getFloat(int row) {
    return ((Number) value).floatValue();
  }

  @Override
  public double getDouble(int row) {
    return ((Number) value).doubleValue();
  }

  @Override
  public ColumnarArray getArray(int row) {
    return null;
  }

  @Override
  public ColumnarMap getMap(int row) {
    return null;
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    return (Decimal) value;
  }

  @Override
  public UTF8String getUTF8String(int row) {
    return (UTF8String) value;
  }

  @Override
  public byte[] getBinary(int row) {
    return (byte[]) value;
  }

  @Override
  public ColumnVector getChild(int at) {
    DataType child = ((StructType) type).apply(at).dataType();
    boolean isNull = !(value instanceof InternalRow row) || row.isNullAt(at);
    return new OneValue(isNull ? null : ((InternalRow) value).get(at, child), child);
  }
}
