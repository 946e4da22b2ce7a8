package io.laketx.spark.write;

import io.laketx.v1.Column;
import io.laketx.v1.ColumnStats;
import io.laketx.v1.DataFile;
import io.laketx.v1.Limit;
import io.laketx.v1.Table;
import io.laketx.v1.Value;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.parquet.column.statistics.Statistics;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.PrimitiveComparator;

/** The statistics of a file that was just written, from its footer: smallest and largest values, and NULLs. */
final class FileBounds {
  private static final int COLUMNS = 32; // leading ones; key, partition and NOT NULL columns always
  private static final int TEXT_CHARS_MAX = Limit.LIMIT_STATISTICS_CHARS_VALUE; // longer ones are cut

  private FileBounds() {}

  static void add(DataFile.Builder entry, Table meta, ParquetMetadata footer) {
    Map<String, List<ColumnChunkMetaData>> chunks = new HashMap<>();
    for (BlockMetaData block : footer.getBlocks()) {
      for (ColumnChunkMetaData one : block.getColumns()) {
        String[] path = one.getPath().toArray();
        if (path.length == 1) chunks.computeIfAbsent(path[0], none -> new ArrayList<>()).add(one);
      }
    }
    for (int at = 0; at < meta.getColumnsCount(); at++) {
      Column column = meta.getColumns(at);
      List<ColumnChunkMetaData> found = chunks.get(column.getName());
      ColumnStats stats = isWanted(meta, at) && found != null ? of(column, found) : null;
      if (stats != null) entry.addStats(stats);
    }
  }

  /** Whether files tell the values of a column. */
  static boolean isWanted(Table meta, int at) {
    Column column = meta.getColumns(at);
    boolean isKey = meta.getPrimaryKeyList().contains(column.getName());
    boolean isPartition = meta.getPartitionColumnsList().contains(column.getName());
    return at < COLUMNS || isKey || isPartition || !column.getNullable();
  }

  /** Null where a row group says nothing. */
  private static ColumnStats of(Column column, List<ColumnChunkMetaData> chunks) {
    ColumnStats.Builder found = ColumnStats.newBuilder().setColumnId(column.getColumnId());
    long nulls = 0;
    boolean isCounted = true;
    boolean isBounded = true;
    Object low = null;
    Object high = null;
    for (ColumnChunkMetaData chunk : chunks) {
      Statistics<?> stats = chunk.getStatistics();
      if (stats == null) return null;
      if (stats.isNumNullsSet()) nulls += stats.getNumNulls();
      else isCounted = false;
      if (stats.isNumNullsSet() && stats.getNumNulls() == chunk.getValueCount()) continue;
      if (!stats.hasNonNullValue() || isNaN(stats.genericGetMin()) || isNaN(stats.genericGetMax())) {
        isBounded = false; // NaN among the values: readers of Parquet differ in where it stands
        continue;
      }
      low = low == null ? stats.genericGetMin() : smaller(stats, low, stats.genericGetMin(), 1);
      high = high == null ? stats.genericGetMax() : smaller(stats, high, stats.genericGetMax(), -1);
    }
    if (isCounted) found.setNulls(nulls);
    if (isBounded && low != null) addBounds(found, column.getType(), low, high);
    return found.build();
  }

  @SuppressWarnings("unchecked")
  private static Object smaller(Statistics<?> stats, Object left, Object right, int sign) {
    PrimitiveComparator<Object> order = (PrimitiveComparator<Object>) (PrimitiveComparator<?>) stats.comparator();
    return order.compare(left, right) * sign <= 0 ? left : right;
  }

  static boolean isNaN(Object value) {
    return (value instanceof Double real && real.isNaN()) || (value instanceof Float small && small.isNaN());
  }

  /** Bounds as Parquet has them. */
  static void addBounds(ColumnStats.Builder found, String type, Object low, Object high) {
    switch (type) {
      case "boolean" -> {
        found.setMin(Value.newBuilder().setBoolean((Boolean) low));
        found.setMax(Value.newBuilder().setBoolean((Boolean) high));
      }
      case "tinyint", "smallint", "int", "bigint" -> {
        found.setMin(Value.newBuilder().setInteger(((Number) low).longValue()));
        found.setMax(Value.newBuilder().setInteger(((Number) high).longValue()));
      }
      case "date" -> {
        found.setMin(Value.newBuilder().setDate(((Number) low).intValue()));
        found.setMax(Value.newBuilder().setDate(((Number) high).intValue()));
      }
      case "timestamp", "timestamp_ntz" -> {
        found.setMin(Value.newBuilder().setTimestampUs(((Number) low).longValue()));
        found.setMax(Value.newBuilder().setTimestampUs(((Number) high).longValue()));
      }
      case "float", "double" -> {
        double least = ((Number) low).doubleValue();
        double most = ((Number) high).doubleValue();
        found.setMin(Value.newBuilder().setReal(least == 0 ? -0.0 : least)); // writers differ in which zero is smaller
        found.setMax(Value.newBuilder().setReal(most == 0 ? 0.0 : most));
      }
      case "string" -> addTexts(found, (Binary) low, (Binary) high);
      case "binary" -> {}
      default -> {
        int scale = Integer.parseInt(type.substring(type.indexOf(',') + 1, type.length() - 1).trim());
        found.setMin(Value.newBuilder().setDecimal(decimal(low, scale)));
        found.setMax(Value.newBuilder().setDecimal(decimal(high, scale)));
      }
    }
  }

  private static String decimal(Object raw, int scale) {
    BigInteger unscaled =
        raw instanceof Binary bytes ? new BigInteger(bytes.getBytes()) : BigInteger.valueOf(((Number) raw).longValue());
    return WireValues.plain(new BigDecimal(unscaled, scale));
  }

  private static void addTexts(ColumnStats.Builder found, Binary low, Binary high) {
    String least = text(low);
    String most = text(high);
    if (least == null || most == null) return;
    boolean isCut = chars(least) > TEXT_CHARS_MAX || chars(most) > TEXT_CHARS_MAX;
    least = cut(least);
    if (chars(most) > TEXT_CHARS_MAX) {
      most = cut(most);
      int begin = most.offsetByCodePoints(most.length(), -1);
      int next = most.codePointAt(begin) + 1;
      if ((next >= 0xD800 && next <= 0xDFFF) || next > 0x10FFFF) return;
      most = most.substring(0, begin) + Character.toString(next);
    }
    found.setMin(Value.newBuilder().setText(least)).setMax(Value.newBuilder().setText(most)).setTruncated(isCut);
  }

  private static int chars(String text) {
    return text.codePointCount(0, text.length());
  }

  private static String cut(String text) {
    return chars(text) <= TEXT_CHARS_MAX ? text : text.substring(0, text.offsetByCodePoints(0, TEXT_CHARS_MAX));
  }

  /** Null where the bytes are no text. */
  private static String text(Binary raw) {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(raw.getBytes())).toString();
    } catch (CharacterCodingException invalid) {
      return null;
    }
  }
}
