package io.laketx.spark.write;

import io.laketx.v1.Column;
import io.laketx.v1.Table;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.hadoop.ParquetOutputFormat;

/** Bloom filters of the columns that a table's property names, in the files that Spark writes. */
final class BloomFilters {
  private static final String COLUMNS = "index.bloom.columns";
  private static final Pattern NAME = Pattern.compile("`(?:[^`]|``)+`|[^,`]+");
  private static final Pattern TYPES =
      Pattern.compile("string|binary|tinyint|smallint|int|bigint|date|timestamp|timestamp_ntz|decimal\\((\\d+),\\d+\\)");
  private static final int DIGITS_MAX = 18; // of decimals that are numbers in files

  private BloomFilters() {}

  /** Each is as large as the values of its row group ask for. */
  static void set(Configuration settings, Table meta) {
    Set<String> listed = listed(meta.getPropertiesOrDefault(COLUMNS, ""));
    if (listed.isEmpty()) return;
    settings.setBoolean(ParquetOutputFormat.ADAPTIVE_BLOOM_FILTER_ENABLED, true);
    for (Column column : meta.getColumnsList()) {
      if (listed.contains(column.getName().toLowerCase(Locale.ROOT)) && hasFilters(column.getType()))
        settings.setBoolean(ParquetOutputFormat.BLOOM_FILTER_ENABLED + "#" + column.getName(), true);
    }
  }

  private static Set<String> listed(String text) {
    Set<String> found = new TreeSet<>();
    Matcher names = NAME.matcher(text);
    while (names.find()) {
      String name = names.group().strip();
      if (name.startsWith("`")) name = name.substring(1, name.length() - 1).replace("``", "`");
      if (!name.isEmpty()) found.add(name.toLowerCase(Locale.ROOT));
    }
    return found;
  }

  private static boolean hasFilters(String type) {
    Matcher found = TYPES.matcher(type);
    return found.matches() && (found.group(1) == null || Integer.parseInt(found.group(1)) <= DIGITS_MAX);
  }
}
