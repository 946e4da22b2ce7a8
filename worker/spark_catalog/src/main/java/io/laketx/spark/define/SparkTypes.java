package io.laketx.spark.define;

import io.laketx.spark.WireTypes;
import io.laketx.spark.service.LakeException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.CharType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.types.VarcharType;

/** Types of Spark in the wire's words. A type that tables don't have is refused with what to use instead. */
public final class SparkTypes {
  private static final String TEXT = "use string";
  private static final String NUMBER = "keep a number (bigint of microseconds, int of months) or string";
  private static final String SHAPE = "keep binary (st_asbinary)";
  private static final String COLLATED =
      "a column compares by bytes: use string, and collate(…) in a condition where another order is meant";
  private static final Map<String, String> INSTEAD =
      Map.of(
          "DayTimeIntervalType", NUMBER,
          "YearMonthIntervalType", NUMBER,
          "CalendarIntervalType", NUMBER,
          "TimeType", "keep a string, or bigint of microseconds",
          "VariantType", "keep a string (to_json), and parse_json it when it is read",
          "GeographyType", SHAPE,
          "GeometryType", SHAPE,
          "NullType", "NULL alone has no type: cast the column");

  private SparkTypes() {}

  /** The wire's word for a type. */
  public static String word(DataType type) {
    if (type instanceof ArrayType array) return "array<" + word(array.elementType()) + ">";
    if (type instanceof MapType map) return "map<" + word(map.keyType()) + "," + word(map.valueType()) + ">";
    if (type instanceof StructType struct) return struct(struct);
    if (type instanceof DecimalType decimal) return "decimal(" + decimal.precision() + "," + decimal.scale() + ")";
    return atomic(type);
  }

  private static String struct(StructType type) {
    List<String> fields = new ArrayList<>();
    for (StructField one : type.fields()) {
      fields.add(WireTypes.below("", one.name()) + ":" + word(one.dataType()) + (one.nullable() ? "" : " not null"));
    }
    return "struct<" + String.join(",", fields) + ">";
  }

  private static String atomic(DataType type) {
    if (type instanceof CharType || type instanceof VarcharType) throw refused(type, TEXT);
    if (type instanceof StringType text) {
      if (!text.isUTF8BinaryCollation()) throw refused(type, COLLATED);
      return "string";
    }
    if (type instanceof LongType) return "bigint";
    if (type instanceof IntegerType) return "int";
    if (type instanceof ShortType) return "smallint";
    if (type instanceof ByteType) return "tinyint";
    if (type instanceof DoubleType) return "double";
    if (type instanceof FloatType) return "float";
    if (type instanceof BooleanType) return "boolean";
    if (type instanceof BinaryType) return "binary";
    if (type instanceof DateType) return "date";
    if (type instanceof TimestampType) return "timestamp";
    if (type instanceof TimestampNTZType) return "timestamp_ntz";
    String name = type.getClass().getSimpleName().replace("$", "");
    throw refused(type, INSTEAD.getOrDefault(name, "cast the column to a type that tables have"));
  }

  static LakeException refused(DataType type, String instead) {
    return LakeException.invalid("TYPE_NOT_SUPPORTED", type.sql().toLowerCase() + " can't be a column's type: " + instead);
  }
}
