package io.laketx.spark.write;

import com.google.protobuf.ByteString;
import io.laketx.v1.Column;
import io.laketx.v1.NullValue;
import io.laketx.v1.Table;
import io.laketx.v1.Value;
import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/** Values that Spark keeps in rows, as values of the wire. */
final class WireValues {
  private WireValues() {}

  /** `value` is of the type that the wire calls so; null is NULL. */
  static Value of(Object value, String type) {
    Value.Builder found = Value.newBuilder();
    if (value == null) return found.setNull(NullValue.NULL_VALUE_UNSPECIFIED).build();
    switch (type) {
      case "boolean" -> found.setBoolean((Boolean) value);
      case "tinyint", "smallint", "int", "bigint" -> found.setInteger(((Number) value).longValue());
      case "float", "double" -> found.setReal(((Number) value).doubleValue() + 0.0); // both zeros are one
      case "string" -> found.setText(value.toString());
      case "binary" -> found.setBinary(ByteString.copyFrom((byte[]) value));
      case "date" -> found.setDate(((Number) value).intValue());
      case "timestamp", "timestamp_ntz" -> found.setTimestampUs(((Number) value).longValue());
      default -> found.setDecimal(plain(((Decimal) value).toJavaBigDecimal()));
    }
    return found.build();
  }

  static String plain(BigDecimal number) {
    return number.toPlainString();
  }

  static Column column(Table meta, String name) {
    for (Column one : meta.getColumnsList()) {
      if (one.getName().equals(name)) return one;
    }
    throw new IllegalStateException("no column " + name);
  }

  /** Whether two values of a row are one key or partition. */
  static boolean same(Object left, Object right) {
    if (left instanceof byte[] bytes) return right instanceof byte[] others && Arrays.equals(bytes, others);
    if (left instanceof Double number && right instanceof Double other) {
      return Double.compare(number + 0.0, other + 0.0) == 0; // both zeros are one, and so is NaN
    }
    if (left instanceof Float number && right instanceof Float other) {
      return Float.compare(number + 0.0f, other + 0.0f) == 0;
    }
    return left == null ? right == null : left.equals(right);
  }

  /** The one of all values that are the same. */
  static Object canonical(Object value) {
    if (value instanceof Double number) return number.isNaN() ? Double.NaN : number + 0.0;
    if (value instanceof Float number) return number.isNaN() ? Float.NaN : number + 0.0f;
    return value;
  }

  /** A value as people write it. */
  static String text(Object value, DataType type) {
    if (type instanceof DateType) return LocalDate.ofEpochDay((Integer) value).toString();
    if (type instanceof TimestampType) return time((Long) value) + "Z";
    if (type instanceof TimestampNTZType) return time((Long) value);
    if (value instanceof byte[] bytes) return "X'" + HexFormat.of().formatHex(bytes) + "'";
    return String.valueOf(value);
  }

  private static String time(long micros) {
    long second = Math.floorDiv(micros, 1_000_000L);
    int nanos = (int) Math.floorMod(micros, 1_000_000L) * 1_000;
    return LocalDateTime.ofEpochSecond(second, nanos, ZoneOffset.UTC).toString();
  }

  /** A value that stays when the row it came from goes on to the next one. */
  static Object kept(Object value) {
    return value instanceof UTF8String text ? text.copy() : value;
  }
}
