package io.laketx.spark.read;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.IsNull;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.sources.Or;
import org.apache.spark.sql.sources.StringContains;
import org.apache.spark.sql.sources.StringEndsWith;
import org.apache.spark.sql.sources.StringStartsWith;

/**
 * Spark's filters under the names that a file has for the columns, for Parquet's reader to leave out row groups.
 *
 * <p>Filters on floats never get there: it would leave out rows that match. To it -0.0 is not 0.0, and many writers
 * leave NaN, which Spark holds above every number, out of a footer's bounds.
 */
final class FileFilters {
  private static final Pattern PLAIN = Pattern.compile("[A-Za-z0-9_]+");

  private FileFilters() {}

  /** Those that name nothing but columns that are known here. */
  static Filter[] under(Map<String, String> names, Filter[] filters) {
    List<Filter> found = new ArrayList<>();
    for (Filter one : filters) {
      Filter renamed = renamed(one, names);
      if (renamed != null) found.add(renamed);
    }
    return found.toArray(Filter[]::new);
  }

  private static Filter renamed(Filter filter, Map<String, String> names) {
    if (filter instanceof And both) {
      Filter left = renamed(both.left(), names);
      Filter right = renamed(both.right(), names);
      return left == null || right == null ? null : new And(left, right);
    }
    if (filter instanceof Or either) {
      Filter left = renamed(either.left(), names);
      Filter right = renamed(either.right(), names);
      return left == null || right == null ? null : new Or(left, right);
    }
    if (filter instanceof Not negated) {
      Filter inner = renamed(negated.child(), names);
      return inner == null ? null : new Not(inner);
    }
    return leaf(filter, attribute -> nameInFile(attribute, names));
  }

  private static String nameInFile(String attribute, Map<String, String> names) {
    String column = Conditions.columnOf(attribute);
    String name = column == null ? null : names.get(column);
    if (name == null) return null;
    return PLAIN.matcher(name).matches() ? name : "`" + name.replace("`", "``") + "`";
  }

  private static Filter leaf(Filter filter, UnaryOperator<String> names) {
    String[] attributes = filter.references();
    String name = attributes.length == 1 ? names.apply(attributes[0]) : null;
    if (name == null) return null;
    if (filter instanceof EqualTo one) return new EqualTo(name, one.value());
    if (filter instanceof EqualNullSafe one) return new EqualNullSafe(name, one.value());
    if (filter instanceof GreaterThan one) return new GreaterThan(name, one.value());
    if (filter instanceof GreaterThanOrEqual one) return new GreaterThanOrEqual(name, one.value());
    if (filter instanceof LessThan one) return new LessThan(name, one.value());
    if (filter instanceof LessThanOrEqual one) return new LessThanOrEqual(name, one.value());
    if (filter instanceof In one) return new In(name, one.values());
    if (filter instanceof IsNull) return new IsNull(name);
    if (filter instanceof IsNotNull) return new IsNotNull(name);
    if (filter instanceof StringStartsWith one) return new StringStartsWith(name, one.value());
    if (filter instanceof StringEndsWith one) return new StringEndsWith(name, one.value());
    if (filter instanceof StringContains one) return new StringContains(name, one.value());
    return null;
  }
}
