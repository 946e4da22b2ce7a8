package io.laketx.spark.changes;

import io.laketx.spark.changes.Range.Looker;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.ResolveVersionRequest;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Where a stream begins, and how much it takes at a time. */
final class StreamOptions {
  private static final String STARTING_TAG = "startingTag";
  private static final String LATEST = "latest";

  private final CaseInsensitiveStringMap options;

  /** At most so many in a batch, but always one file or commit. */
  final long filesMax;

  final long rowsMax;
  final long bytesMax;

  /** Whether commits that did more than add rows are passed over. */
  final boolean skips;

  /** How long what is not read is kept for a stream that doesn't run; 0: as long as the service keeps it. */
  final long keepMs;

  StreamOptions(CaseInsensitiveStringMap options) {
    this.options = options;
    for (String end : List.of(Range.ENDING_VERSION, Range.ENDING_TIMESTAMP)) {
      if (options.containsKey(end)) {
        throw LakeException.invalid("OPTION_INVALID", end + ": a stream has no end, leave it out");
      }
    }
    filesMax = atLeastOne("maxFilesPerTrigger", Long.MAX_VALUE);
    rowsMax = atLeastOne("maxRowsPerTrigger", Long.MAX_VALUE);
    bytesMax = atLeastOne("maxBytesPerTrigger", Long.MAX_VALUE);
    skips = options.getBoolean("skipChangeCommits", false);
    keepMs = TimeUnit.HOURS.toMillis(atLeastOne("keepHours", 0));
  }

  private long atLeastOne(String name, long otherwise) {
    String text = options.get(name);
    if (text == null) return otherwise;
    if (!text.matches("[0-9]{1,18}") || Long.parseLong(text) < 1) {
      throw LakeException.invalid("OPTION_INVALID", name + " is '" + text + "': write a whole number from 1");
    }
    return Long.parseLong(text);
  }

  /** The place before the first row: of what the table is at its head, unless an option says another. */
  Position first(Looker look) {
    String version = options.get(Range.STARTING_VERSION);
    String time = options.get(Range.STARTING_TIMESTAMP);
    String tag = options.get(STARTING_TAG);
    int said = (version == null ? 0 : 1) + (time == null ? 0 : 1) + (tag == null ? 0 : 1);
    if (said > 1) {
      throw LakeException.invalid(
          "OPTION_INVALID", "a stream begins at a version, a time or a tag: keep one of the options");
    }
    boolean isIncluded = options.getBoolean("startingBoundInclusive", true);
    if (LATEST.equalsIgnoreCase(version)) return after(look, ResolveVersionRequest.newBuilder());
    if (version != null) {
      return Position.after(look.tableId(), Math.max(look.version(version) - (isIncluded ? 1 : 0), 0));
    }
    if (tag != null) return after(look, ResolveVersionRequest.newBuilder().setTag(tag));
    if (time != null) {
      long timeUs = Range.timeUs(Range.STARTING_TIMESTAMP, time) - (isIncluded ? 1 : 0);
      return after(look, ResolveVersionRequest.newBuilder().setTimeUs(timeUs));
    }
    return Position.inSnapshot(look.tableId(), look.ask(ResolveVersionRequest.newBuilder()).getVersion(), 0);
  }

  private static Position after(Looker look, ResolveVersionRequest.Builder at) {
    return Position.after(look.tableId(), look.ask(at).getVersion());
  }

  /** What is left of a batch. */
  final class Budget {
    private final boolean isEndless;
    private long files;
    private long rows;
    private long bytes;
    private boolean isUsed;

    Budget(boolean isEndless) {
      this.isEndless = isEndless;
    }

    boolean isUsed() {
      return isUsed;
    }

    /** Whether there is room for so much; the first always fits. */
    boolean takes(long moreFiles, long moreRows, long moreBytes) {
      files += moreFiles;
      rows += moreRows;
      bytes += moreBytes;
      boolean fits = isEndless || !isUsed || (files <= filesMax && rows <= rowsMax && bytes <= bytesMax);
      isUsed = true;
      return fits;
    }
  }
}
