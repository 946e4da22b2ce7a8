package io.laketx.spark.metadata;

import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.SparkInternals;
import java.util.List;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/** The metadata tables that every table has. */
public enum MetadataKind {
  HISTORY(
      "version bigint, commit_time timestamp, time_version timestamp, operation string, txn_id string, user string,"
          + " client string, message string, read_version bigint, rebased_over bigint, files_added bigint,"
          + " files_removed bigint, rows_added bigint, rows_removed bigint, bytes_added bigint, bytes_removed bigint,"
          + " delete_sets_added bigint, delete_sets_removed bigint, properties map<string,string>",
      Commits::history),
  SNAPSHOTS(
      "version bigint, commit_time timestamp, time_version timestamp, operation string, tags array<string>",
      Commits::snapshots),
  TRANSACTIONS(
      "txn_id string, state string, operation string, user string, client string, message string,"
          + " begin_time timestamp, end_time timestamp, version bigint, reason string",
      Commits::transactions),
  TAGS("name string, version bigint, comment string, user string, create_time timestamp", Commits::tags),
  FILES(
      "content string, path string, partition map<string,string>, bucket int, kind string, rows bigint, bytes bigint,"
          + " data_version bigint, added_version bigint, schema_version bigint, first_row_id bigint,"
          + " tombstones bigint, external boolean, row_order string, inlined boolean",
      Entries::files),
  PARTITIONS(
      "partition map<string,string>, files bigint, rows bigint, bytes bigint, delete_sets bigint,"
          + " rows_hidden bigint",
      Entries::partitions);

  private final StructType schema;
  private final Function<Snapshot, List<InternalRow>> rows;

  MetadataKind(String ddl, Function<Snapshot, List<InternalRow>> rows) {
    schema = SparkInternals.columns(ddl);
    this.rows = rows;
  }

  /** The one of that name; null where there is none. */
  public static MetadataKind find(String name) {
    for (MetadataKind one : values()) {
      if (one.name().equalsIgnoreCase(name)) return one;
    }
    return null;
  }

  public StructType schema() {
    return schema;
  }

  List<InternalRow> rows(Snapshot snapshot) {
    return rows.apply(snapshot);
  }
}
