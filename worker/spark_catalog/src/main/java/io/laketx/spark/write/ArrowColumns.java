package io.laketx.spark.write;

import io.laketx.spark.WireTypes;
import io.laketx.v1.Column;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.arrow.vector.types.DateUnit;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
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

/** The columns of inlined files in Arrow, as worker/files/arrow_types.py has them: with ids, and NULL allowed. */
final class ArrowColumns {
  private static final String ID = "PARQUET:field_id"; // where Python looks for it
  private static final int DECIMAL_BITS = 128;

  private final Map<String, Integer> ids; // of one column, by path

  private ArrowColumns(Column column) {
    ids = WireTypes.idsByPath(column);
  }

  static Schema of(Table meta, boolean withOp, boolean withSet) {
    List<Field> fields = new ArrayList<>();
    for (Column one : meta.getColumnsList()) {
      DataType type = WireTypes.typeOf(one.getType());
      fields.add(new ArrowColumns(one).field(one.getName(), type, "", one.getColumnId()));
    }
    if (withOp) fields.add(Field.nullable(FileColumns.OP.name(), arrow(FileColumns.OP.dataType())));
    if (withSet) fields.add(Field.nullable(FileColumns.SET.name(), arrow(FileColumns.SET.dataType())));
    return new Schema(fields);
  }

  /** `path` leads to it within the column. */
  private Field field(String name, DataType type, String path, Integer id) {
    return new Field(name, fieldType(type, true, id), parts(type, path));
  }

  private static FieldType fieldType(DataType type, boolean nullable, Integer id) {
    return new FieldType(nullable, arrow(type), null, id == null ? null : Map.of(ID, id.toString()));
  }

  private Field part(String name, DataType type, String path) {
    String below = WireTypes.below(path, name);
    return field(name, type, below, ids.get(below));
  }

  private List<Field> parts(DataType type, String path) {
    List<Field> found = new ArrayList<>();
    if (type instanceof StructType struct) {
      for (StructField one : struct.fields()) found.add(part(one.name(), one.dataType(), path));
    } else if (type instanceof ArrayType array) {
      found.add(part("element", array.elementType(), path));
    } else if (type instanceof MapType map) {
      String below = WireTypes.below(path, "key");
      FieldType ofKey = fieldType(map.keyType(), false, ids.get(below));
      Field key = new Field("key", ofKey, parts(map.keyType(), below));
      Field value = part("value", map.valueType(), path);
      found.add(new Field("entries", FieldType.notNullable(ArrowType.Struct.INSTANCE), List.of(key, value)));
    }
    return found;
  }

  private static ArrowType arrow(DataType type) {
    if (type instanceof BooleanType) return ArrowType.Bool.INSTANCE;
    if (type instanceof ByteType) return new ArrowType.Int(Byte.SIZE, true);
    if (type instanceof ShortType) return new ArrowType.Int(Short.SIZE, true);
    if (type instanceof IntegerType) return new ArrowType.Int(Integer.SIZE, true);
    if (type instanceof LongType) return new ArrowType.Int(Long.SIZE, true);
    if (type instanceof FloatType) return new ArrowType.FloatingPoint(FloatingPointPrecision.SINGLE);
    if (type instanceof DoubleType) return new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE);
    if (type instanceof StringType) return ArrowType.Utf8.INSTANCE;
    if (type instanceof BinaryType) return ArrowType.Binary.INSTANCE;
    if (type instanceof DateType) return new ArrowType.Date(DateUnit.DAY);
    if (type instanceof TimestampNTZType) return new ArrowType.Timestamp(TimeUnit.MICROSECOND, null);
    if (type instanceof DecimalType decimal) {
      return new ArrowType.Decimal(decimal.precision(), decimal.scale(), DECIMAL_BITS);
    }
    if (type instanceof StructType) return ArrowType.Struct.INSTANCE;
    if (type instanceof ArrayType) return ArrowType.List.INSTANCE;
    if (type instanceof MapType) return new ArrowType.Map(false);
    return new ArrowType.Timestamp(TimeUnit.MICROSECOND, "UTC");
  }
}
