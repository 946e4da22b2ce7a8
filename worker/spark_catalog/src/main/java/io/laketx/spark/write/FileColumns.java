package io.laketx.spark.write;

import io.laketx.spark.WireTypes;
import io.laketx.spark.read.Shapes;
import io.laketx.v1.Column;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** A table's columns as its files have them: with their ids, and NULL allowed everywhere. */
final class FileColumns {
  static final StructField ROW_ID = new StructField("_row_id", DataTypes.LongType, true, id(2_147_483_540));
  static final StructField OP = new StructField("_op", DataTypes.ByteType, false, id(2_147_483_400));
  static final StructField SET = new StructField(Shapes.SET, DataTypes.BinaryType, true, id(2_147_483_399));
  private static final String FIELD_ID = "parquet.field.id"; // where Spark looks for it

  private FileColumns() {}

  static StructType of(Table meta) {
    List<StructField> fields = new ArrayList<>();
    for (Column one : meta.getColumnsList()) {
      DataType type = withIds(WireTypes.typeOf(one.getType()), "", WireTypes.idsByPath(one));
      fields.add(new StructField(one.getName(), type, true, id(one.getColumnId())));
    }
    return new StructType(fields.toArray(StructField[]::new));
  }

  private static Metadata id(Integer id) {
    return id == null ? Metadata.empty() : new MetadataBuilder().putLong(FIELD_ID, id).build();
  }

  private static DataType withIds(DataType type, String path, Map<String, Integer> ids) {
    if (type instanceof StructType struct) {
      List<StructField> fields = new ArrayList<>();
      for (StructField one : struct.fields()) {
        String below = WireTypes.below(path, one.name());
        fields.add(new StructField(one.name(), withIds(one.dataType(), below, ids), true, id(ids.get(below))));
      }
      return new StructType(fields.toArray(StructField[]::new));
    }
    if (type instanceof ArrayType array) {
      return DataTypes.createArrayType(withIds(array.elementType(), WireTypes.below(path, "element"), ids), true);
    }
    if (type instanceof MapType map) {
      DataType key = withIds(map.keyType(), WireTypes.below(path, "key"), ids);
      return DataTypes.createMapType(key, withIds(map.valueType(), WireTypes.below(path, "value"), ids), true);
    }
    return type;
  }
}
