package io.laketx.spark.read;

import com.google.protobuf.ByteString;
import io.laketx.spark.WireTypes;
import io.laketx.v1.Column;
import io.laketx.v1.Compare;
import io.laketx.v1.Comparison;
import io.laketx.v1.InList;
import io.laketx.v1.IsNull;
import io.laketx.v1.Limit;
import io.laketx.v1.NullValue;
import io.laketx.v1.Predicate;
import io.laketx.v1.PredicateList;
import io.laketx.v1.StartsWith;
import io.laketx.v1.Table;
import io.laketx.v1.Value;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.sources.AlwaysFalse;
import org.apache.spark.sql.sources.AlwaysTrue;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.sources.Or;
import org.apache.spark.sql.sources.StringStartsWith;
import org.apache.spark.sql.types.Decimal;

/**
 * Spark's filters as conditions of the wire. What is taken over means in the service exactly what it means in Spark; a
 * conjunct that can't be expressed is left out as a whole, which is TRUE.
 */
public final class Conditions {
  private static final int NODES_MAX = Limit.LIMIT_CONDITION_NODES_VALUE;
  private static final int DEPTH_MAX = Limit.LIMIT_CONDITION_DEPTH_VALUE;
  private static final int TEXT_CHARS_MAX = Limit.LIMIT_CONDITION_TEXT_CHARS_VALUE;

  private final Map<String, Column> columns = new HashMap<>();
  private int nodes;

  private Conditions(Table meta) {
    for (Column one : meta.getColumnsList()) columns.put(one.getName(), one);
  }

  /** What all the filters say together; null where that is nothing. */
  public static Predicate of(Filter[] filters, Table meta) {
    Conditions conditions = new Conditions(meta);
    List<Predicate> parts = new ArrayList<>();
    for (Filter one : filters) conditions.addConjuncts(one, parts);
    return parts.isEmpty() ? null : allOf(parts);
  }

  /** The one column that a filter's name means; null where it means a field in one. */
  static String columnOf(String attribute) {
    if (attribute.startsWith("`") && attribute.endsWith("`") && attribute.length() > 2) {
      String inner = attribute.substring(1, attribute.length() - 1);
      return inner.replace("``", "").contains("`") ? null : inner.replace("``", "`");
    }
    return attribute.contains(".") ? null : attribute;
  }

  // -- filters

  private void addConjuncts(Filter filter, List<Predicate> parts) {
    if (filter instanceof And both) {
      addConjuncts(both.left(), parts);
      addConjuncts(both.right(), parts);
      return;
    }
    nodes = 0;
    Predicate found = exact(filter, 0);
    if (found != null && nodes <= NODES_MAX) parts.add(found);
  }

  /** The same condition; null where the wire can't say it. */
  private Predicate exact(Filter filter, int depth) {
    nodes++;
    if (depth > DEPTH_MAX) return null;
    if (filter instanceof And both) {
      Predicate left = exact(both.left(), depth + 1);
      Predicate right = left == null ? null : exact(both.right(), depth + 1);
      return right == null ? null : allOf(List.of(left, right));
    }
    if (filter instanceof Or either) {
      Predicate left = exact(either.left(), depth + 1);
      Predicate right = left == null ? null : exact(either.right(), depth + 1);
      return right == null ? null : anyOf(List.of(left, right));
    }
    if (filter instanceof Not negated) {
      Predicate inner = exact(negated.child(), depth + 1);
      return inner == null ? null : not(inner);
    }
    if (filter instanceof AlwaysTrue) return Predicate.newBuilder().setLiteral(true).build();
    if (filter instanceof AlwaysFalse) return Predicate.newBuilder().setLiteral(false).build();
    return leaf(filter);
  }

  private Predicate leaf(Filter filter) {
    if (filter instanceof EqualTo one) return compare(one.attribute(), Comparison.COMPARISON_EQUAL, one.value());
    if (filter instanceof GreaterThan one) {
      return compare(one.attribute(), Comparison.COMPARISON_GREATER, one.value());
    }
    if (filter instanceof GreaterThanOrEqual one) {
      return compare(one.attribute(), Comparison.COMPARISON_GREATER_OR_EQUAL, one.value());
    }
    if (filter instanceof LessThan one) return compare(one.attribute(), Comparison.COMPARISON_LESS, one.value());
    if (filter instanceof LessThanOrEqual one) {
      return compare(one.attribute(), Comparison.COMPARISON_LESS_OR_EQUAL, one.value());
    }
    if (filter instanceof EqualNullSafe one) return nullSafe(one);
    if (filter instanceof org.apache.spark.sql.sources.IsNull one) {
      Column column = column(one.attribute());
      return column == null ? null : isNull(column.getName());
    }
    if (filter instanceof IsNotNull one) {
      Column column = column(one.attribute());
      return column == null ? null : not(isNull(column.getName()));
    }
    if (filter instanceof In one) return inList(one);
    if (filter instanceof StringStartsWith one) {
      Column column = column(one.attribute());
      if (column == null || !column.getType().equals("string") || one.value().length() > TEXT_CHARS_MAX) return null;
      StartsWith.Builder starts = StartsWith.newBuilder().setColumn(column.getName()).setPrefix(one.value());
      return Predicate.newBuilder().setStartsWith(starts).build();
    }
    return null;
  }

  private Predicate nullSafe(EqualNullSafe one) {
    Column column = column(one.attribute());
    if (column == null) return null;
    if (one.value() == null) return isNull(column.getName());
    Predicate equal = compare(one.attribute(), Comparison.COMPARISON_EQUAL, one.value());
    return equal == null ? null : allOf(List.of(equal, not(isNull(column.getName()))));
  }

  private Predicate compare(String attribute, Comparison comparison, Object literal) {
    Column column = column(attribute);
    Value value = column == null ? null : value(column, literal);
    if (value == null) return null;
    return compare(Compare.newBuilder().setColumn(column.getName()).setComparison(comparison).setValue(value));
  }

  private Predicate inList(In one) {
    Column column = column(one.attribute());
    if (column == null || one.values().length == 0) return null;
    nodes += one.values().length;
    if (nodes > NODES_MAX) return null;
    InList.Builder list = InList.newBuilder().setColumn(column.getName());
    for (Object literal : one.values()) {
      Value value = value(column, literal);
      if (value == null) return null;
      list.addValues(value);
    }
    return Predicate.newBuilder().setInList(list).build();
  }

  private Column column(String attribute) {
    String name = columnOf(attribute);
    return name == null ? null : columns.get(name);
  }

  /** A literal of the column's own type; null where the wire has no value for it. */
  private static Value value(Column column, Object literal) {
    String type = column.getType();
    if (type.startsWith("array") || type.startsWith("map") || type.startsWith("struct")) return null;
    if (literal == null) return Value.newBuilder().setNull(NullValue.NULL_VALUE_UNSPECIFIED).build();
    Object known = SparkInternals.toCatalyst(literal, WireTypes.typeOf(type));
    Value.Builder value = Value.newBuilder();
    switch (type) {
      case "boolean" -> value.setBoolean((Boolean) known);
      case "tinyint", "smallint", "int", "bigint" -> value.setInteger(((Number) known).longValue());
      case "float", "double" -> {
        double number = ((Number) known).doubleValue();
        if (Double.isNaN(number) || Double.isInfinite(number)) return null;
        value.setReal(number);
      }
      case "string" -> {
        String text = known.toString();
        if (text.length() > TEXT_CHARS_MAX) return null;
        value.setText(text);
      }
      case "binary" -> value.setBinary(ByteString.copyFrom((byte[]) known));
      case "date" -> value.setDate(((Number) known).intValue());
      case "timestamp", "timestamp_ntz" -> value.setTimestampUs(((Number) known).longValue());
      default -> {
        if (!(known instanceof Decimal number)) return null;
        value.setDecimal(number.toJavaBigDecimal().toPlainString());
      }
    }
    return value.build();
  }

  // -- conditions

  private static Predicate allOf(List<Predicate> parts) {
    if (parts.size() == 1) return parts.get(0);
    return Predicate.newBuilder().setAllOf(PredicateList.newBuilder().addAllOperands(parts)).build();
  }

  private static Predicate anyOf(List<Predicate> parts) {
    return Predicate.newBuilder().setAnyOf(PredicateList.newBuilder().addAllOperands(parts)).build();
  }

  private static Predicate not(Predicate one) {
    return Predicate.newBuilder().setNegation(one).build();
  }

  private static Predicate isNull(String column) {
    return Predicate.newBuilder().setIsNull(IsNull.newBuilder().setColumn(column)).build();
  }

  private static Predicate compare(Compare.Builder compare) {
    return Predicate.newBuilder().setCompare(compare).build();
  }
}
