package io.laketx.spark.changes;

import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import io.laketx.v1.ResolveVersionRequest;
import io.laketx.v1.ResolveVersionResponse;
import java.time.ZoneId;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.connector.catalog.ChangelogRange;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/** The versions in (begin, end]. */
record Range(long begin, long end) {
  private static final Pattern NUMBER = Pattern.compile("[0-9]{1,18}");
  static final String STARTING_VERSION = "startingVersion";
  static final String ENDING_VERSION = "endingVersion";
  static final String STARTING_TIMESTAMP = "startingTimestamp";
  static final String ENDING_TIMESTAMP = "endingTimestamp";

  static Range checked(long begin, long end) {
    if (begin > end) {
      throw LakeException.invalid(
          "RANGE_INVALID",
          "the range ends at version " + end + ", before its first version " + (begin + 1) + ": correct the range");
    }
    return new Range(begin, end);
  }

  /** Whether a text is no version and no tag: a bare number would be a year. */
  static boolean isTime(String text) {
    return !NUMBER.matcher(text).matches() && parsed(text).isDefined();
  }

  private static Option<Object> parsed(String text) {
    ZoneId zone = DateTimeUtils.getZoneId(SQLConf.get().sessionLocalTimeZone());
    return DateTimeUtils.stringToTimestamp(UTF8String.fromString(text.trim()), zone);
  }

  /** A time as text, in the session's zone where it has none. */
  static long timeUs(String option, String text) {
    Option<Object> found = parsed(text);
    if (found.isEmpty()) {
      throw LakeException.invalid("POINT_INVALID", option + " is '" + text + "': write it as 2026-11-01 10:00:00");
    }
    return (Long) found.get();
  }

  /** Asks for the versions of one table. */
  record Looker(Service service, String tableId) {

    /** The last version of the range; null where nothing says one. */
    Long end(CaseInsensitiveStringMap options) {
      String version = options.get(ENDING_VERSION);
      String time = options.get(ENDING_TIMESTAMP);
      if (version != null && time != null) throw twice(ENDING_VERSION, ENDING_TIMESTAMP);
      if (version != null) return version(version);
      return time == null ? null : (Long) at(timeUs(ENDING_TIMESTAMP, time));
    }

    /** The version before the range, whose first version or time is included; 0 where nothing says one. */
    long begin(CaseInsensitiveStringMap options) {
      String version = options.get(STARTING_VERSION);
      String time = options.get(STARTING_TIMESTAMP);
      if (version != null && time != null) throw twice(STARTING_VERSION, STARTING_TIMESTAMP);
      if (version != null) return Math.max(version(version) - 1, 0);
      return time == null ? 0 : at(timeUs(STARTING_TIMESTAMP, time) - 1);
    }

    private static LakeException twice(String one, String other) {
      return LakeException.invalid("RANGE_INVALID", "there are both " + one + " and " + other + ": keep one of them");
    }

    /** The same for Spark's CHANGES. */
    Long end(ChangelogRange range) {
      if (range instanceof ChangelogRange.VersionRange by && by.endingVersion().isPresent()) {
        return version(by.endingVersion().get()) - (by.endingBoundInclusive() ? 0 : 1);
      }
      if (range instanceof ChangelogRange.TimestampRange by && by.endingTimestamp().isPresent()) {
        return at(by.endingTimestamp().get() - (by.endingBoundInclusive() ? 0 : 1));
      }
      return null;
    }

    long begin(ChangelogRange range) {
      if (range instanceof ChangelogRange.VersionRange by) {
        return Math.max(version(by.startingVersion()) - (by.startingBoundInclusive() ? 1 : 0), 0);
      }
      if (range instanceof ChangelogRange.TimestampRange by) {
        return at(by.startingTimestamp() - (by.startingBoundInclusive() ? 1 : 0));
      }
      return 0;
    }

    /** A number, or the name of a tag. */
    long version(String text) {
      if (NUMBER.matcher(text).matches()) return Long.parseLong(text);
      return ask(ResolveVersionRequest.newBuilder().setTag(text)).getVersion();
    }

    long at(long timeUs) {
      return ask(ResolveVersionRequest.newBuilder().setTimeUs(timeUs)).getVersion();
    }

    ResolveVersionResponse ask(ResolveVersionRequest.Builder at) {
      ResolveVersionRequest request = at.setTableId(tableId).build();
      return service.ask(stubs -> stubs.reads().resolveVersion(request));
    }
  }
}
