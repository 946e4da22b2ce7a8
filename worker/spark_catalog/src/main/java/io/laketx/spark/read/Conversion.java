package io.laketx.spark.read;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** A value of a stored type as one of the type that is read: wider, or with other fields. Never NULL. */
interface Conversion {
  Conversion SAME = value -> value;

  Object of(Object value);

  /** Fields are found by name; one that isn't stored is NULL. Gives a new row, even where nothing changes. */
  static Conversion ofRows(StructType stored, StructType read) {
    StructField[] fields = read.fields();
    int[] places = new int[fields.length];
    DataType[] types = new DataType[fields.length];
    Conversion[] parts = new Conversion[fields.length];
    for (int at = 0; at < fields.length; at++) {
      Option<Object> found = stored.getFieldIndex(fields[at].name());
      places[at] = found.isDefined() ? (Integer) found.get() : -1;
      if (places[at] < 0) continue;
      types[at] = stored.apply(places[at]).dataType();
      parts[at] = of(types[at], fields[at].dataType());
    }
    return value -> {
      InternalRow row = (InternalRow) value;
      Object[] values = new Object[places.length];
      for (int at = 0; at < places.length; at++) {
        if (places[at] >= 0 && !row.isNullAt(places[at])) values[at] = parts[at].of(row.get(places[at], types[at]));
      }
      return new GenericInternalRow(values);
    };
  }

  private static Conversion of(DataType stored, DataType read) {
    if (read instanceof StructType struct) return ofRows((StructType) stored, struct);
    if (read instanceof ArrayType array) {
      DataType element = ((ArrayType) stored).elementType();
      Conversion each = of(element, array.elementType());
      return value -> elements((ArrayData) value, element, each);
    }
    if (read instanceof MapType map) {
      MapType kept = (MapType) stored;
      Conversion keys = of(kept.keyType(), map.keyType());
      Conversion values = of(kept.valueType(), map.valueType());
      return value -> {
        MapData entries = (MapData) value;
        return new ArrayBasedMapData(
            elements(entries.keyArray(), kept.keyType(), keys), elements(entries.valueArray(), kept.valueType(), values));
      };
    }
    if (stored.equals(read)) return SAME;
    Expression cast = new Cast(new BoundReference(0, stored, false), read, Option.apply("UTC"));
    return value -> cast.eval(new GenericInternalRow(new Object[] {value}));
  }

  private static ArrayData elements(ArrayData array, DataType type, Conversion each) {
    Object[] found = new Object[array.numElements()];
    Arrays.setAll(found, at -> array.isNullAt(at) ? null : each.of(array.get(at, type)));
    return new GenericArrayData(found);
  }
}
