package io.laketx.spark.read;

import io.laketx.spark.WireTypes;
import io.laketx.v1.Column;
import io.laketx.v1.DataFile;
import java.util.ArrayList;
import java.util.HashMap;
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

/**
 * How the columns wanted of a table are read from each of its files.
 *
 * <p>A file is read under the names that its columns had when it was written, with the types of the schema that is read,
 * and each column and field is found by its id: names may mean another column by now. External files have no ids and are
 * read by name; their partition columns come from their entries.
 */
final class Layouts {
  private static final String FIELD_ID = "parquet.field.id"; // where Spark looks for it

  private final Snapshot snapshot;
  private final StructType wanted;
  private final Map<String, Column> columns = new HashMap<>();
  private final Map<Object, Layout> known = new HashMap<>();

  /** `wanted`: columns of the snapshot's schema, perhaps with fewer fields. */
  Layouts(Snapshot snapshot, StructType wanted) {
    this.snapshot = snapshot;
    this.wanted = wanted;
    for (Column one : snapshot.meta().getColumnsList()) columns.put(one.getName(), one);
  }

  /** A column in a file: none, a field to be read, or the partition's value. */
  record Found(StructField field, boolean isPartition) {
    static final Found NOWHERE = new Found(null, false);
    static final Found IN_PARTITION = new Found(null, true);
  }

  /** The columns wanted in files of one kind; files with equal tags are read alike. */
  record Layout(Object tag, List<Found> found, List<Found> keys) {}

  private record Tag(long schemaVersion, boolean external) {}

  Layout of(DataFile file) {
    return known.computeIfAbsent(new Tag(file.getSchemaVersion(), file.getExternal()), tag -> make(tag, file));
  }

  private Layout make(Object tag, DataFile file) {
    Map<Integer, Column> then = new HashMap<>();
    for (Column one : snapshot.columnsOf(file)) then.put(one.getColumnId(), one);
    List<Found> found = new ArrayList<>();
    for (StructField one : wanted.fields()) found.add(find(one.name(), one.dataType(), then, file));
    List<Found> keys = new ArrayList<>();
    for (String name : snapshot.meta().getPrimaryKeyList()) {
      keys.add(find(name, WireTypes.typeOf(columns.get(name).getType()), then, file));
    }
    return new Layout(tag, found, keys);
  }

  private Found find(String name, DataType type, Map<Integer, Column> columnsThen, DataFile file) {
    Column now = columns.get(name);
    Column then = columnsThen.get(now.getColumnId());
    if (file.getExternal() && file.getPartition().getValuesList().stream().anyMatch(v -> v.getColumn().equals(name))) {
      return Found.IN_PARTITION;
    }
    if (then == null) return Found.NOWHERE;
    if (file.getExternal()) {
      return new Found(new StructField(then.getName(), plain(type), true, Metadata.empty()), false);
    }
    Map<Integer, String> pathsThen = new HashMap<>();
    then.getNestedList().forEach(one -> pathsThen.put(one.getFieldId(), one.getPath()));
    DataType kind = inFile(type, "", WireTypes.idsByPath(now), pathsThen);
    return new Found(new StructField(then.getName(), kind, true, id(now.getColumnId())), false);
  }

  private static Metadata id(Integer id) {
    return id == null ? Metadata.empty() : new MetadataBuilder().putLong(FIELD_ID, id).build();
  }

  /** The type with the names that the file has for the same ids; what it lacks gets a name that nothing has. */
  private static DataType inFile(DataType type, String path, Map<String, Integer> ids, Map<Integer, String> then) {
    if (type instanceof StructType struct) {
      List<StructField> fields = new ArrayList<>();
      for (StructField one : struct.fields()) {
        String below = WireTypes.below(path, one.name());
        Integer id = ids.get(below);
        String name = then.containsKey(id) ? WireTypes.lastName(then.get(id)) : "_laketx_" + id;
        fields.add(new StructField(name, inFile(one.dataType(), below, ids, then), true, id(id)));
      }
      return new StructType(fields.toArray(StructField[]::new));
    }
    if (type instanceof ArrayType array) {
      return DataTypes.createArrayType(inFile(array.elementType(), WireTypes.below(path, "element"), ids, then), true);
    }
    if (type instanceof MapType map) {
      DataType key = inFile(map.keyType(), WireTypes.below(path, "key"), ids, then);
      DataType value = inFile(map.valueType(), WireTypes.below(path, "value"), ids, then);
      return DataTypes.createMapType(key, value, true);
    }
    return type;
  }

  /** The type without ids. */
  private static DataType plain(DataType type) {
    if (type instanceof StructType struct) {
      List<StructField> fields = new ArrayList<>();
      for (StructField one : struct.fields()) {
        fields.add(new StructField(one.name(), plain(one.dataType()), true, Metadata.empty()));
      }
      return new StructType(fields.toArray(StructField[]::new));
    }
    if (type instanceof ArrayType array) return DataTypes.createArrayType(plain(array.elementType()), true);
    if (type instanceof MapType map) {
      return DataTypes.createMapType(plain(map.keyType()), plain(map.valueType()), true);
    }
    return type;
  }
}
