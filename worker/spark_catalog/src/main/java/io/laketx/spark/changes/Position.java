package io.laketx.spark.changes;

import io.laketx.spark.service.LakeException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.read.streaming.Offset;

/**
 * How far a stream has read: everything up to a version; or all before it and some of its files; or some files of what the
 * table was at a version, with which a stream begins.
 */
final class Position extends Offset {
  private static final int ALL = -1;
  private static final Pattern JSON =
      Pattern.compile(
          "\\{\"table\":\"([^\"]*)\",\"version\":([0-9]+),\"files\":(-?[0-9]+),\"snapshot\":(true|false)\\}");

  private final String tableId;
  private final long version;
  private final int files;
  private final boolean isSnapshot;

  private Position(String tableId, long version, int files, boolean isSnapshot) {
    this.tableId = tableId;
    this.version = version;
    this.files = files;
    this.isSnapshot = isSnapshot;
  }

  static Position after(String tableId, long version) {
    return new Position(tableId, version, ALL, false);
  }

  static Position within(String tableId, long version, int files) {
    return new Position(tableId, version, files, false);
  }

  static Position inSnapshot(String tableId, long version, int files) {
    return new Position(tableId, version, files, true);
  }

  static Position parse(String json) {
    Matcher found = JSON.matcher(json.trim());
    if (!found.matches()) {
      throw LakeException.invalid(
          "CHECKPOINT_INVALID",
          "the checkpoint's " + json + " is no place in a table of LakeTX: give the query a checkpoint of its own");
    }
    return new Position(
        found.group(1), Long.parseLong(found.group(2)), Integer.parseInt(found.group(3)), found.group(4).equals("true"));
  }

  String tableId() {
    return tableId;
  }

  long version() {
    return version;
  }

  boolean isSnapshot() {
    return isSnapshot;
  }

  /** Whether some files of the version are left. */
  boolean isPart() {
    return files != ALL;
  }

  /** How many files of a version were read. */
  int filesOf(long asked) {
    return isPart() && asked == version ? files : 0;
  }

  /** The last version that must stay readable: all changes up to it were read. */
  long base() {
    return isSnapshot || !isPart() ? version : version - 1;
  }

  @Override
  public String json() {
    return String.format(
        "{\"table\":\"%s\",\"version\":%d,\"files\":%d,\"snapshot\":%b}", tableId, version, files, isSnapshot);
  }
}
