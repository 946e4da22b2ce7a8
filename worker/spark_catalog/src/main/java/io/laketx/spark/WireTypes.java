package io.laketx.spark;

import io.laketx.v1.Column;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Columns of the wire as Spark's types. The wire has Spark's words: `array<struct<k:string not null>>`. */
public final class WireTypes {
  private static final Pattern TOKEN = Pattern.compile("`(?:[^`]|``)+`|[A-Za-z0-9_]+|[<>(),:]");
  private static final Pattern PLAIN = Pattern.compile("[A-Za-z0-9_]+");
  private static final Map<String, DataType> ATOMIC =
      Map.ofEntries(
          Map.entry("boolean", DataTypes.BooleanType),
          Map.entry("tinyint", DataTypes.ByteType),
          Map.entry("smallint", DataTypes.ShortType),
          Map.entry("int", DataTypes.IntegerType),
          Map.entry("bigint", DataTypes.LongType),
          Map.entry("float", DataTypes.FloatType),
          Map.entry("double", DataTypes.DoubleType),
          Map.entry("string", DataTypes.StringType),
          Map.entry("binary", DataTypes.BinaryType),
          Map.entry("date", DataTypes.DateType),
          Map.entry("timestamp", DataTypes.TimestampType),
          Map.entry("timestamp_ntz", DataTypes.TimestampNTZType));

  private final List<String> tokens = new ArrayList<>();
  private int at;

  private WireTypes(String text) {
    Matcher found = TOKEN.matcher(text);
    while (found.find()) tokens.add(found.group());
  }

  /** A table's columns as people see them, with their comments. */
  public static StructType schemaOf(List<Column> columns) {
    List<StructField> fields = new ArrayList<>();
    for (Column one : columns) {
      Metadata metadata = Metadata.empty();
      if (!one.getComment().isEmpty()) {
        metadata = new MetadataBuilder().putString("comment", one.getComment()).build();
      }
      fields.add(new StructField(one.getName(), typeOf(one.getType()), one.getNullable(), metadata));
    }
    return new StructType(fields.toArray(StructField[]::new));
  }

  /** The wire's word as a type. */
  public static DataType typeOf(String text) {
    return new WireTypes(text).parse();
  }

  /** The path of a field below a column, as the wire has it. */
  public static String below(String path, String name) {
    String quoted = PLAIN.matcher(name).matches() ? name : "`" + name.replace("`", "``") + "`";
    return path.isEmpty() ? quoted : path + "." + quoted;
  }

  /** The last name of a path. */
  public static String lastName(String path) {
    Matcher found = TOKEN.matcher(path);
    String last = path;
    while (found.find()) last = found.group();
    return unquoted(last);
  }

  /** Ids of the fields in a column, by their paths. */
  public static Map<String, Integer> idsByPath(Column column) {
    Map<String, Integer> found = new HashMap<>();
    column.getNestedList().forEach(one -> found.put(one.getPath(), one.getFieldId()));
    return found;
  }

  private static String unquoted(String name) {
    return name.startsWith("`") ? name.substring(1, name.length() - 1).replace("``", "`") : name;
  }

  private DataType parse() {
    String word = take();
    switch (word) {
      case "decimal" -> {
        take();
        int precision = Integer.parseInt(take());
        take();
        int scale = Integer.parseInt(take());
        take();
        return DecimalType.apply(precision, scale);
      }
      case "array" -> {
        take();
        DataType element = parse();
        take();
        return DataTypes.createArrayType(element, true);
      }
      case "map" -> {
        take();
        DataType key = parse();
        take();
        DataType value = parse();
        take();
        return DataTypes.createMapType(key, value, true);
      }
      case "struct" -> {
        return struct();
      }
      default -> {
        DataType found = ATOMIC.get(word);
        if (found == null) {
          throw new IllegalArgumentException("the table has a column of type " + word + ", which this jar doesn't know");
        }
        return found;
      }
    }
  }

  private StructType struct() {
    List<StructField> fields = new ArrayList<>();
    while (!take().equals(">")) { // "<" first, then ","
      String name = unquoted(take());
      take();
      DataType type = parse();
      boolean nullable = true;
      if (at < tokens.size() && tokens.get(at).equals("not")) {
        at += 2;
        nullable = false;
      }
      fields.add(new StructField(name, type, nullable, Metadata.empty()));
    }
    return new StructType(fields.toArray(StructField[]::new));
  }

  private String take() {
    return tokens.get(at++);
  }
}
