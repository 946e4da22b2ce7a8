package io.laketx.spark.write;

import io.laketx.spark.WireTypes;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Column;
import io.laketx.v1.Table;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** A row of a streaming query as a row of a table: columns are found by name, those that it lacks are NULL. */
final class PlacedRow {
  private static final int NOWHERE = -1;

  private final DataType[] types;
  private final int[] places;
  private final GenericInternalRow found;

  PlacedRow(DataType[] types, int[] places) {
    this.types = types;
    this.places = places;
    found = new GenericInternalRow(types.length);
  }

  InternalRow of(InternalRow row) {
    for (int at = 0; at < places.length; at++) {
      boolean isNull = places[at] == NOWHERE || row.isNullAt(places[at]);
      found.update(at, isNull ? null : row.get(places[at], types[at]));
    }
    return found;
  }

  /** The names, in lower case, of the columns that the rows have. */
  static Set<String> given(Table meta, int[] places) {
    Set<String> found = new HashSet<>();
    for (int at = 0; at < meta.getColumnsCount(); at++) {
      boolean isThere = places == null || places[at] != NOWHERE;
      if (isThere) found.add(meta.getColumns(at).getName().toLowerCase(Locale.ROOT));
    }
    return found;
  }

  /** Where the rows have each column of the table; null: in the same places. Spark casts nothing for streams. */
  static int[] places(Table meta, StructType rows) {
    boolean isSensitive = SQLConf.get().caseSensitiveAnalysis();
    Map<String, Integer> known = new HashMap<>();
    for (int at = 0; at < rows.length(); at++) {
      String name = rows.apply(at).name();
      known.put(isSensitive ? name : name.toLowerCase(Locale.ROOT), at);
    }
    int[] places = new int[meta.getColumnsCount()];
    for (int at = 0; at < places.length; at++) {
      Column column = meta.getColumns(at);
      String name = column.getName();
      Integer place = known.remove(isSensitive ? name : name.toLowerCase(Locale.ROOT));
      places[at] = place == null ? NOWHERE : place;
      if (place == null) {
        if (!column.getNullable()) throw mismatch(meta, "the query has no column " + name + ", which must not be NULL");
        continue;
      }
      DataType wanted = WireTypes.typeOf(column.getType());
      DataType given = rows.apply(place).dataType();
      if (!DataType.equalsIgnoreNullability(wanted, given)) {
        String cast = "the column " + name + " is " + given.sql() + " in the query and " + wanted.sql() + " in the table";
        throw mismatch(meta, cast + ": cast it in the query");
      }
    }
    if (!known.isEmpty()) {
      throw mismatch(meta, "the table has no column " + String.join(", ", new TreeSet<>(known.keySet())));
    }
    boolean isSame = rows.length() == places.length;
    for (int at = 0; at < places.length; at++) isSame &= places[at] == at;
    return isSame ? null : Arrays.copyOf(places, places.length);
  }

  private static LakeException mismatch(Table meta, String why) {
    return LakeException.invalid("SCHEMA_MISMATCH", "the query's rows don't fit " + meta.getName() + ": " + why);
  }
}
