package io.laketx.spark.read;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.vectorized.ColumnVector;

/** Keys of one column of whole numbers: open addressing, at most half full; 0 stands for an empty place. */
final class LongKeys implements KeyTable {
  private final DataType type;
  private final boolean isLong;
  private final boolean isInt;
  private ColumnVector keys;
  private long[] places = new long[1 << 12];
  private int count;
  private boolean hasZero;

  LongKeys(DataType type) {
    this.type = type;
    isLong = type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType;
    isInt = type instanceof IntegerType || type instanceof DateType;
  }

  @Override
  public void turnTo(ColumnVector[] columns) {
    keys = columns[0];
  }

  @Override
  public boolean add(int row) {
    long key = at(row);
    if (key == 0) {
      boolean isNew = !hasZero;
      hasZero = true;
      return isNew;
    }
    if (2 * count >= places.length) grow();
    int place = find(places, key);
    if (places[place] == key) return false;
    places[place] = key;
    count++;
    return true;
  }

  @Override
  public boolean contains(int row) {
    long key = at(row);
    return key == 0 ? hasZero : places[find(places, key)] == key;
  }

  private long at(int row) {
    if (isLong) return keys.getLong(row);
    return isInt ? keys.getInt(row) : KeyTable.wholeAt(keys, type, row);
  }

  private static int find(long[] places, long key) {
    int last = places.length - 1;
    int place = (int) KeyTable.mixed(key) & last;
    while (places[place] != 0 && places[place] != key) place = (place + 1) & last;
    return place;
  }

  private void grow() {
    long[] larger = new long[Math.multiplyExact(places.length, 2)];
    for (long key : places) {
      if (key != 0) larger[find(larger, key)] = key;
    }
    places = larger;
  }
}
