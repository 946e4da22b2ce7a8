package io.laketx.spark.changes;

import io.laketx.spark.read.Snapshot;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.LongSupplier;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What Spark asks of an increment: which columns and rows. */
final class ChangesScanBuilder implements SupportsPushDownRequiredColumns, SupportsPushDownFilters {
  private final String name;
  private final Snapshot table;
  private final StructType columns;
  private final StructType whole;
  private final LongSupplier begin;
  private final ChangesMode mode;
  private final CaseInsensitiveStringMap options;
  private StructType required;
  private Filter[] filters = {};

  /**
   * @param table at the end of the range
   * @param whole the table's columns and those of increments
   * @param begin the version before the range, asked for by batches alone
   */
  ChangesScanBuilder(
      String name,
      Snapshot table,
      StructType columns,
      StructType whole,
      LongSupplier begin,
      ChangesMode mode,
      CaseInsensitiveStringMap options) {
    this.name = name;
    this.table = table;
    this.columns = columns;
    this.whole = whole;
    this.begin = begin;
    this.mode = mode;
    this.options = options;
    required = whole;
  }

  /** A column is read with all its fields: a change of each of them counts. */
  @Override
  public void pruneColumns(StructType asked) {
    Set<String> names = new HashSet<>(List.of(asked.fieldNames()));
    required =
        new StructType(
            Arrays.stream(whole.fields()).filter(one -> names.contains(one.name())).toArray(StructField[]::new));
  }

  @Override
  public Filter[] pushFilters(Filter[] asked) {
    filters = asked;
    return asked;
  }

  @Override
  public Filter[] pushedFilters() {
    return filters;
  }

  @Override
  public Scan build() {
    return new ChangesScan(name, table, columns, required, filters, this::range, mode, options);
  }

  /** In a log each version stands for itself: those that the filters rule out are not looked at. */
  private Range range() {
    Range range = Range.checked(begin.getAsLong(), table.version());
    if (mode != ChangesMode.LOG) return range;
    long begin = range.begin();
    long end = range.end();
    for (Filter one : filters) {
      if (one instanceof EqualTo by && isVersion(by.attribute(), by.value())) {
        begin = Math.max(begin, (Long) by.value() - 1);
        end = Math.min(end, (Long) by.value());
      }
      if (one instanceof GreaterThan by && isVersion(by.attribute(), by.value())) {
        begin = Math.max(begin, (Long) by.value());
      }
      if (one instanceof GreaterThanOrEqual by && isVersion(by.attribute(), by.value())) {
        begin = Math.max(begin, (Long) by.value() - 1);
      }
      if (one instanceof LessThan by && isVersion(by.attribute(), by.value())) end = Math.min(end, (Long) by.value() - 1);
      if (one instanceof LessThanOrEqual by && isVersion(by.attribute(), by.value())) end = Math.min(end, (Long) by.value());
    }
    return new Range(Math.min(begin, range.end()), Math.max(end, Math.min(begin, range.end())));
  }

  private static boolean isVersion(String attribute, Object value) {
    List<String> names = new ArrayList<>(List.of(ChangeColumns.VERSION, "`" + ChangeColumns.VERSION + "`"));
    return names.contains(attribute) && value instanceof Long;
  }
}
