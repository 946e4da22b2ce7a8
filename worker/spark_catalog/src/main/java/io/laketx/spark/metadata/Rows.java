package io.laketx.spark.metadata;

import io.laketx.v1.Partition;
import io.laketx.v1.Value;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Rows of metadata tables and procedures as Spark keeps them. */
public final class Rows {
  private Rows() {}

  /** Of numbers, booleans, texts, lists and maps of texts; null: NULL. */
  public static InternalRow of(Object... values) {
    Object[] kept = new Object[values.length];
    for (int at = 0; at < values.length; at++) kept[at] = kept(values[at]);
    return new GenericInternalRow(kept);
  }

  private static Object kept(Object value) {
    if (value instanceof String text) return UTF8String.fromString(text);
    if (value instanceof List<?> list) return new GenericArrayData(list.stream().map(Rows::kept).toArray());
    if (value instanceof Map<?, ?> map) {
      Object[] keys = map.keySet().stream().map(Rows::kept).toArray();
      Object[] values = map.values().stream().map(Rows::kept).toArray();
      return new ArrayBasedMapData(new GenericArrayData(keys), new GenericArrayData(values));
    }
    return value;
  }

  /** A word of the wire without what all its neighbours begin with: `insert`. */
  public static String word(Enum<?> one, String prefix) {
    String name = one.name();
    return (name.startsWith(prefix) ? name.substring(prefix.length()) : name).toLowerCase(Locale.ROOT);
  }

  public static String orNull(String text) {
    return text.isEmpty() ? null : text;
  }

  /** Column names to values as people write them; a timestamp is an instant, a column without a zone a clock's. */
  static Map<String, String> partition(Partition partition, Set<String> instants) {
    Map<String, String> found = new LinkedHashMap<>();
    partition
        .getValuesList()
        .forEach(one -> found.put(one.getColumn(), text(one.getValue(), instants.contains(one.getColumn()))));
    return found;
  }

  private static String text(Value value, boolean isInstant) {
    return switch (value.getKindCase()) {
      case BOOLEAN -> Boolean.toString(value.getBoolean());
      case INTEGER -> Long.toString(value.getInteger());
      case REAL -> Double.toString(value.getReal());
      case TEXT -> value.getText();
      case BINARY -> hex(value.getBinary().toByteArray());
      case DECIMAL -> value.getDecimal();
      case DATE -> LocalDate.ofEpochDay(value.getDate()).toString();
      case TIMESTAMP_US -> time(value.getTimestampUs()) + (isInstant ? "Z" : "");
      default -> null;
    };
  }

  private static String hex(byte[] bytes) {
    return HexFormat.of().formatHex(bytes);
  }

  private static String time(long micros) {
    long seconds = Math.floorDiv(micros, 1_000_000L);
    long nanos = Math.floorMod(micros, 1_000_000L) * 1_000;
    return LocalDateTime.ofInstant(Instant.ofEpochSecond(seconds, nanos), ZoneOffset.UTC).toString();
  }
}
