package io.laketx.spark.changes;

import io.laketx.spark.changes.Range.Looker;
import io.laketx.spark.read.SparkInternals;
import io.laketx.spark.service.Ids;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.AdvanceCursorRequest;
import io.laketx.v1.CreateCursorRequest;
import io.laketx.v1.DropCursorRequest;
import io.laketx.v1.ErrorKind;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What a stream leaves behind for its next start: a file in the checkpoint, which says where it began, and a cursor of the
 * table, which keeps what it has not read. The cursor bears a name of its own, so that a checkpoint that is made anew
 * begins anew.
 *
 * <p>A start takes the cursor where it is, as a crash may have left it behind the checkpoint. From then on nobody else moves
 * it; where it is elsewhere, another query has the same checkpoint.
 */
final class StreamMark {
  private static final Logger LOG = LoggerFactory.getLogger(StreamMark.class);
  private static final String FILE = "/laketx-start";
  private static final long TOUCH_NS = TimeUnit.HOURS.toNanos(1);

  private final Looker look;
  private final String path;
  private final boolean isTemporary;
  private final long keepMs;
  private String cursor;
  private Position first;
  private long kept = -1;
  private long touchedNs;

  StreamMark(Looker look, String checkpoint, long keepMs) {
    this.look = look;
    this.keepMs = keepMs;
    path = checkpoint + FILE;
    isTemporary = checkpoint.contains("/temporary-"); // Spark's name for a checkpoint that nobody asked for
  }

  /** The place before the first row; it is asked for once in the life of a checkpoint. */
  Position first(Supplier<Position> wanted) {
    try {
      if (first == null && SparkInternals.isFile(path)) read();
      if (first == null) {
        first = wanted.get();
        cursor = "stream-" + Ids.uuid7();
        keep(first.base());
        SparkInternals.writeFile(path, (cursor + "\n" + first.json() + "\n").getBytes(StandardCharsets.UTF_8));
      }
      return first;
    } catch (IOException error) {
      throw new UncheckedIOException("the checkpoint's file " + path + ": " + error.getMessage(), error);
    }
  }

  private void read() throws IOException {
    String[] lines = new String(SparkInternals.readFile(path), StandardCharsets.UTF_8).split("\n");
    if (lines.length < 2) {
      throw LakeException.invalid("CHECKPOINT_INVALID", path + " is damaged: give the query a checkpoint of its own");
    }
    cursor = lines[0];
    first = Position.parse(lines[1]);
  }

  /** Lets everything after a version be kept; the cursor is made anew where it is gone. */
  void keep(long version) {
    kept = place(asked().setVersion(version).setKeepMs(keepMs));
    advance(Math.max(version, kept));
  }

  /** Before a batch that Spark has not planned yet: nobody else has moved the cursor. */
  void check() {
    if (kept < 0) return;
    long version;
    try {
      version = place(asked().setMustExist(true));
    } catch (LakeException error) {
      passOrThrow(error);
      return;
    }
    if (version != kept) throw shared();
  }

  private CreateCursorRequest.Builder asked() {
    return CreateCursorRequest.newBuilder()
        .setTableId(look.tableId())
        .setName(cursor)
        .setPrincipal(look.service().principal());
  }

  private long place(CreateCursorRequest.Builder asked) {
    CreateCursorRequest request = asked.build();
    return look.service().ask(stubs -> stubs.reads().createCursor(request)).getCursor().getVersion();
  }

  /** All up to the version was delivered. */
  void moveTo(long version) {
    if (kept >= 0 && version > kept) advance(version);
  }

  /** A cursor that is not used for long keeps nothing any more. */
  void touch() {
    if (kept >= 0 && System.nanoTime() - touchedNs > TOUCH_NS) advance(kept);
  }

  private void advance(long version) {
    AdvanceCursorRequest request =
        AdvanceCursorRequest.newBuilder()
            .setRequestId(Ids.uuid7())
            .setTableId(look.tableId())
            .setName(cursor)
            .setExpectedVersion(kept)
            .setVersion(version)
            .build();
    try {
      look.service().ask(stubs -> stubs.reads().advanceCursor(request));
      kept = version;
    } catch (LakeException error) {
      passOrThrow(error);
    }
    touchedNs = System.nanoTime();
  }

  /** Without its cursor a stream goes on; beside another one with the same cursor it does not. */
  private void passOrThrow(LakeException error) {
    if (error.reason().equals("CURSOR_MOVED")) throw shared();
    if (error.kind() == ErrorKind.ERROR_KIND_UNAVAILABLE || error.kind() == ErrorKind.ERROR_KIND_EXHAUSTED) throw error;
    LOG.warn("the cursor {}, which keeps what the stream has not read, can't be moved: {}", cursor, error.getMessage());
  }

  private LakeException shared() {
    return LakeException.invalid(
        "CHECKPOINT_SHARED",
        "the cursor " + cursor + " is no longer at version " + kept + ", where this query left it: another query has the"
            + " same checkpoint; stop one of them, or give each a checkpoint of its own, and start this one again");
  }

  /** Nothing comes back to a checkpoint that goes with its query. */
  void end() {
    if (!isTemporary || cursor == null) return;
    try {
      DropCursorRequest request =
          DropCursorRequest.newBuilder().setTableId(look.tableId()).setName(cursor).build();
      look.service().ask(stubs -> stubs.reads().dropCursor(request));
    } catch (LakeException error) {
      LOG.debug("a cursor is left to its time: {}", error.getMessage());
    }
  }
}
