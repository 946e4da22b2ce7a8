package io.laketx.spark.procedures;

import static org.apache.spark.sql.types.DataTypes.BooleanType;
import static org.apache.spark.sql.types.DataTypes.LongType;
import static org.apache.spark.sql.types.DataTypes.StringType;
import static org.apache.spark.sql.types.DataTypes.TimestampType;

import io.laketx.spark.metadata.Commits;
import io.laketx.spark.metadata.MetadataKind;
import io.laketx.spark.metadata.Rows;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.CreateCursorRequest;
import io.laketx.v1.CreateTagRequest;
import io.laketx.v1.Cursor;
import io.laketx.v1.DropCursorRequest;
import io.laketx.v1.DropTagRequest;
import io.laketx.v1.ListCursorsRequest;
import io.laketx.v1.ListCursorsResponse;
import io.laketx.v1.ListTagsRequest;
import io.laketx.v1.ListTagsResponse;
import io.laketx.v1.Table;
import io.laketx.v1.Tag;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;

/** Procedures for what keeps versions: tags and cursors. */
final class Marking {
  private static final long HOUR_MS = 3_600_000;
  private static final long HOURS_MAX = 366 * 24;
  private static final String CURSORS =
      "name string, version bigint, user string, create_time timestamp, used_time timestamp, keep_ms bigint,"
          + " left_ms bigint, expired boolean";

  private Marking() {}

  static List<LakeProcedure> all(Lake lake) {
    return List.of(
        new LakeProcedure("tags", "Lists a table's tags, by name.")
            .takesTable()
            .answers(MetadataKind.TAGS.schema())
            .does(given -> tags(lake, given)),
        new LakeProcedure("create_tag", "Names a version, which stays readable while it has the name.")
            .takesTable()
            .takes("name", StringType, "the tag's name")
            .mayTake("version", LongType, "NULL", "the version; the newest if nothing says another")
            .mayTake("time", TimestampType, "NULL", "the newest version at that time, instead")
            .mayTake("comment", StringType, "''", "what for")
            .mayTake("move", BooleanType, "false", "take the name from another version")
            .answers(MetadataKind.TAGS.schema())
            .does(given -> createTag(lake, given)),
        new LakeProcedure("drop_tag", "Drops a tag. Its version may go then.")
            .takesTable()
            .takes("name", StringType, "the tag's name")
            .answers("dropped boolean")
            .does(given -> dropTag(lake, given)),
        new LakeProcedure("cursors", "Lists a table's cursors, by name.")
            .takesTable()
            .answers(CURSORS)
            .does(given -> cursors(lake, given)),
        new LakeProcedure("create_cursor", "Creates a cursor, or shows the one of that name as it is.")
            .takesTable()
            .takes("name", StringType, "the cursor's name")
            .mayTake("version", LongType, "NULL", "everything up to it counts as read; the newest if none is given")
            .mayTake("keep_hours", LongType, "168", "how long after its last use it keeps what comes after it")
            .answers(CURSORS)
            .does(given -> createCursor(lake, given)),
        new LakeProcedure("drop_cursor", "Drops a cursor. What it kept may go then.")
            .takesTable()
            .takes("name", StringType, "the cursor's name")
            .answers("dropped boolean")
            .does(given -> dropCursor(lake, given)));
  }

  private static List<InternalRow> tags(Lake lake, Arguments given) {
    ListTagsRequest.Builder request =
        ListTagsRequest.newBuilder().setTableId(lake.table(given).getTableId()).setPageSize(Lake.PAGE);
    return Lake.pages(
        Integer.MAX_VALUE,
        token -> {
          ListTagsRequest page = request.setPageToken(token).build();
          ListTagsResponse answer = lake.service().ask(stubs -> stubs.reads().listTags(page));
          return new Lake.Page(answer.getTagsList().stream().map(Commits::row).toList(), answer.getNextPageToken());
        });
  }

  /** The version is looked up first: a repeated call must not mean a later one. */
  private static List<InternalRow> createTag(Lake lake, Arguments given) {
    Table table = lake.table(given);
    CreateTagRequest request =
        CreateTagRequest.newBuilder()
            .setTableId(table.getTableId())
            .setName(given.text("name"))
            .setVersion(lake.version(table, given))
            .setComment(given.text("comment"))
            .setPrincipal(lake.service().principal())
            .setMove(given.flag("move"))
            .build();
    Tag made = lake.service().ask(stubs -> stubs.reads().createTag(request)).getTag();
    return List.of(Commits.row(made));
  }

  private static List<InternalRow> dropTag(Lake lake, Arguments given) {
    DropTagRequest request =
        DropTagRequest.newBuilder().setTableId(lake.table(given).getTableId()).setName(given.text("name")).build();
    return List.of(Rows.of(lake.service().ask(stubs -> stubs.reads().dropTag(request)).getDropped()));
  }

  private static List<InternalRow> cursors(Lake lake, Arguments given) {
    ListCursorsRequest.Builder request =
        ListCursorsRequest.newBuilder().setTableId(lake.table(given).getTableId()).setPageSize(Lake.PAGE);
    return Lake.pages(
        Integer.MAX_VALUE,
        token -> {
          ListCursorsRequest page = request.setPageToken(token).build();
          ListCursorsResponse answer = lake.service().ask(stubs -> stubs.reads().listCursors(page));
          return new Lake.Page(answer.getCursorsList().stream().map(Marking::row).toList(), answer.getNextPageToken());
        });
  }

  private static List<InternalRow> createCursor(Lake lake, Arguments given) {
    Table table = lake.table(given);
    long hours = given.has("keep_hours") ? given.number("keep_hours") : 0;
    if (hours < 0 || hours > HOURS_MAX) {
      throw LakeException.invalid("KEEP_INVALID", "keep_hours is " + hours + ": give 1 to " + HOURS_MAX);
    }
    CreateCursorRequest.Builder request =
        CreateCursorRequest.newBuilder()
            .setTableId(table.getTableId())
            .setName(given.text("name"))
            .setKeepMs(hours * HOUR_MS)
            .setPrincipal(lake.service().principal());
    if (given.has("version")) request.setVersion(given.number("version"));
    CreateCursorRequest whole = request.build();
    return List.of(row(lake.service().ask(stubs -> stubs.reads().createCursor(whole)).getCursor()));
  }

  private static List<InternalRow> dropCursor(Lake lake, Arguments given) {
    DropCursorRequest request =
        DropCursorRequest.newBuilder().setTableId(lake.table(given).getTableId()).setName(given.text("name")).build();
    return List.of(Rows.of(lake.service().ask(stubs -> stubs.reads().dropCursor(request)).getDropped()));
  }

  private static InternalRow row(Cursor one) {
    return Rows.of(
        one.getName(),
        one.getVersion(),
        Rows.orNull(one.getPrincipal().getName()),
        one.getCreateTimeUs(),
        one.getUsedTimeUs(),
        one.getKeepMs(),
        one.getLeftMs(),
        one.getExpired());
  }
}
