package io.laketx.spark.changes;

import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.LakeException;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** The columns of an increment: the table's, and of each row how, by which commit and when it changed. */
final class ChangeColumns {
  static final String TYPE = "_change_type";
  static final String VERSION = "_commit_version";

  /** Its name in LakeTX, and the one that Spark's CHANGES asks for. */
  static final String TIME = "_commit_time";

  static final String TIMESTAMP = "_commit_timestamp";

  /** Of tables whose images may set single columns: the names of those that a change set, NULL if it wrote whole rows. */
  static final String SET = "_set_columns";

  static final UTF8String INSERT = UTF8String.fromString("insert");
  static final UTF8String PREIMAGE = UTF8String.fromString("update_preimage");
  static final UTF8String POSTIMAGE = UTF8String.fromString("update_postimage");
  static final UTF8String DELETE = UTF8String.fromString("delete");

  static final Set<String> ALL = Set.of(TYPE, VERSION, TIME, TIMESTAMP, SET);

  private ChangeColumns() {}

  /** `time` is one of the two names. */
  static StructType beside(Snapshot snapshot, StructType table, String time) {
    for (String one : table.fieldNames()) {
      String name = one.toLowerCase(Locale.ROOT);
      if (ALL.contains(name) && (snapshot.isPartial() || !name.equals(SET))) {
        throw LakeException.invalid("COLUMN_RESERVED", one + " is a column of increments themselves: rename it");
      }
    }
    StructType found =
        table
            .add(new StructField(TYPE, DataTypes.StringType, false, Metadata.empty()))
            .add(new StructField(VERSION, DataTypes.LongType, false, Metadata.empty()))
            .add(new StructField(time, DataTypes.TimestampType, false, Metadata.empty()));
    if (!snapshot.isPartial()) return found;
    return found.add(new StructField(SET, new ArrayType(DataTypes.StringType, true), true, Metadata.empty()));
  }

  /** Of rows that a commit inserted, as values of all of them. */
  static Map<String, Object> inserted(long version, long timeUs) {
    return Map.of(TYPE, INSERT, VERSION, version, TIME, timeUs, TIMESTAMP, timeUs);
  }
}
