package io.laketx.spark.read;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.vectorized.ColumnVector;

/**
 * Keys of any columns: a hash of each, and its bytes for those whose hashes are equal.
 *
 * <p>Equal keys have equal bytes: -0.0 is written as 0.0, every NaN as one, a decimal as its digits under the column's
 * scale. What has bytes of any number is preceded by how many they are.
 */
final class ByteKeys implements KeyTable {
  private static final int CHUNK_BYTES = 1 << 20;

  private final DataType[] types;
  private final List<byte[]> chunks = new ArrayList<>();
  private ColumnVector[] keys;
  private int[] places = new int[1 << 12]; // 1 + the number of an entry; 0: empty
  private long[] hashes = new long[1 << 11]; // by entry
  private int[] chunkOf = new int[1 << 11];
  private int[] begins = new int[1 << 11];
  private int[] lengths = new int[1 << 11];
  private int count;
  private int end; // in the last chunk
  private byte[] written = new byte[256];
  private int length;

  ByteKeys(DataType[] types) {
    this.types = types;
  }

  @Override
  public void turnTo(ColumnVector[] columns) {
    keys = columns;
  }

  @Override
  public boolean contains(int row) {
    return find(row) >= 0;
  }

  /** The number of the row's key, in the order in which they were added; negative: it is not there. */
  int find(int row) {
    long hash = hash(row);
    int last = places.length - 1;
    boolean isWritten = false;
    for (int place = (int) hash & last; places[place] != 0; place = (place + 1) & last) {
      int entry = places[place] - 1;
      if (hashes[entry] != hash) continue;
      if (!isWritten) write(row);
      isWritten = true;
      if (isEntry(entry)) return entry;
    }
    return -1;
  }

  @Override
  public boolean add(int row) {
    if (contains(row)) return false;
    if (2 * (count + 1) > places.length) grow();
    write(row);
    if (chunks.isEmpty() || end + length > chunks.get(chunks.size() - 1).length) {
      chunks.add(new byte[Math.max(CHUNK_BYTES, length)]);
      end = 0;
    }
    System.arraycopy(written, 0, chunks.get(chunks.size() - 1), end, length);
    long hash = hash(row);
    hashes[count] = hash;
    chunkOf[count] = chunks.size() - 1;
    begins[count] = end;
    lengths[count] = length;
    end += length;
    put(places, hash, ++count);
    return true;
  }

  private boolean isEntry(int entry) {
    int begin = begins[entry];
    byte[] chunk = chunks.get(chunkOf[entry]);
    return Arrays.equals(chunk, begin, begin + lengths[entry], written, 0, length);
  }

  private void grow() {
    int size = Math.multiplyExact(places.length, 2);
    places = new int[size];
    hashes = Arrays.copyOf(hashes, size / 2);
    chunkOf = Arrays.copyOf(chunkOf, size / 2);
    begins = Arrays.copyOf(begins, size / 2);
    lengths = Arrays.copyOf(lengths, size / 2);
    for (int entry = 0; entry < count; entry++) put(places, hashes[entry], entry + 1);
  }

  private static void put(int[] places, long hash, int value) {
    int last = places.length - 1;
    int place = (int) hash & last;
    while (places[place] != 0) place = (place + 1) & last;
    places[place] = value;
  }

  // -- one key

  private long hash(int row) {
    long found = 0;
    for (int at = 0; at < types.length; at++) {
      ColumnVector column = keys[at];
      DataType type = types[at];
      long one;
      if (column.isNullAt(row)) one = 1;
      else if (type instanceof StringType) one = column.getUTF8String(row).hashCode();
      else if (KeyTable.isWhole(type)) one = KeyTable.wholeAt(column, type, row);
      else if (type instanceof BinaryType) one = Arrays.hashCode(column.getBinary(row));
      else if (type instanceof DoubleType) one = bits(column.getDouble(row));
      else if (type instanceof FloatType) one = bits(column.getFloat(row));
      else one = Arrays.hashCode(digits(column, (DecimalType) type, row));
      found = KeyTable.mixed(found ^ one) + at;
    }
    return found;
  }

  private void write(int row) {
    length = 0;
    for (int at = 0; at < types.length; at++) {
      ColumnVector column = keys[at];
      DataType type = types[at];
      boolean isNull = column.isNullAt(row);
      room(1);
      written[length++] = (byte) (isNull ? 0 : 1);
      if (isNull) continue;
      if (type instanceof StringType) put(column.getUTF8String(row).getBytes());
      else if (KeyTable.isWhole(type)) put(KeyTable.wholeAt(column, type, row));
      else if (type instanceof BinaryType) put(column.getBinary(row));
      else if (type instanceof DoubleType) put(bits(column.getDouble(row)));
      else if (type instanceof FloatType) put(bits(column.getFloat(row)));
      else put(digits(column, (DecimalType) type, row));
    }
  }

  private void put(byte[] bytes) {
    put((long) bytes.length);
    room(bytes.length);
    System.arraycopy(bytes, 0, written, length, bytes.length);
    length += bytes.length;
  }

  private void put(long number) {
    room(8);
    for (int at = 0; at < 8; at++) written[length++] = (byte) (number >>> (8 * at));
  }

  private void room(int bytes) {
    if (length + bytes > written.length) written = Arrays.copyOf(written, Math.max(2 * written.length, length + bytes));
  }

  private static long bits(double number) {
    return Double.doubleToLongBits(number == 0 ? 0.0 : number);
  }

  private static byte[] digits(ColumnVector column, DecimalType type, int row) {
    var number = column.getDecimal(row, type.precision(), type.scale()).toJavaBigDecimal();
    return number.setScale(type.scale()).unscaledValue().toByteArray();
  }
}
