package io.laketx.spark.procedures;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;

/** What a CALL gives, by the names of the parameters. */
record Arguments(List<String> names, InternalRow row) {
  boolean has(String name) {
    return names.contains(name) && !row.isNullAt(at(name));
  }

  /** Empty for NULL. */
  String text(String name) {
    return has(name) ? row.getUTF8String(at(name)).toString() : "";
  }

  long number(String name) {
    return row.getLong(at(name));
  }

  boolean flag(String name) {
    return has(name) && row.getBoolean(at(name));
  }

  /** Empty for NULL. */
  List<String> texts(String name) {
    List<String> found = new ArrayList<>();
    if (!has(name)) return found;
    ArrayData given = row.getArray(at(name));
    for (int each = 0; each < given.numElements(); each++) {
      found.add(given.isNullAt(each) ? "" : given.getUTF8String(each).toString());
    }
    return found;
  }

  private int at(String name) {
    return names.indexOf(name);
  }
}
