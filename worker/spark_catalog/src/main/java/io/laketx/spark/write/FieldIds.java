package io.laketx.spark.write;

import com.google.protobuf.InvalidProtocolBufferException;
import io.laketx.spark.WireTypes;
import io.laketx.v1.Column;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.hadoop.ParquetOutputFormat;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.LogicalTypeAnnotation.ListLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.MapLogicalTypeAnnotation;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.Type;
import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport;

/**
 * Spark's way of writing rows, in files that also have the ids of elements of arrays and of keys and values of maps.
 * Spark itself takes ids from fields, and these are none.
 */
public final class FieldIds extends ParquetWriteSupport {
  private static final String TABLE = "laketx.table"; // its definition

  /** Files that are written under the configuration get the ids of the table. */
  static void set(Configuration conf, Table meta) {
    conf.set(TABLE, Base64.getEncoder().encodeToString(meta.toByteArray()));
    conf.set(ParquetOutputFormat.WRITE_SUPPORT_CLASS, FieldIds.class.getName());
  }

  @Override
  public WriteContext init(Configuration conf) {
    WriteContext spark = super.init(conf);
    Map<String, Column> columns = new HashMap<>();
    for (Column one : tableOf(conf).getColumnsList()) columns.put(one.getName(), one);
    MessageType schema = spark.getSchema();
    List<Type> found = new ArrayList<>();
    for (Type one : schema.getFields()) {
      Column column = columns.get(one.getName());
      found.add(column == null ? one : withIds(one, "", WireTypes.idsByPath(column)));
    }
    return new WriteContext(new MessageType(schema.getName(), found), spark.getExtraMetaData());
  }

  private static Table tableOf(Configuration conf) {
    try {
      return Table.parseFrom(Base64.getDecoder().decode(conf.get(TABLE)));
    } catch (InvalidProtocolBufferException error) {
      throw new IllegalStateException(error);
    }
  }

  /** The type with ids on all that is inside it, which the path leads to. */
  private static Type withIds(Type type, String path, Map<String, Integer> ids) {
    if (type.isPrimitive()) return type;
    GroupType group = type.asGroupType();
    boolean isRepeated =
        group.getLogicalTypeAnnotation() instanceof ListLogicalTypeAnnotation
            || group.getLogicalTypeAnnotation() instanceof MapLogicalTypeAnnotation;
    GroupType holder = isRepeated ? group.getType(0).asGroupType() : group; // of element, of key and value, of fields
    List<Type> parts = new ArrayList<>();
    for (Type one : holder.getFields()) {
      String below = WireTypes.below(path, one.getName());
      Type part = withIds(one, below, ids);
      parts.add(ids.containsKey(below) ? part.withId(ids.get(below)) : part);
    }
    GroupType filled = holder.withNewFields(parts);
    return isRepeated ? group.withNewFields(filled) : filled;
  }
}
