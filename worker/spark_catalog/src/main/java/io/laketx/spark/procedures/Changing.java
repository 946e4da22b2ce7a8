package io.laketx.spark.procedures;

import static org.apache.spark.sql.types.DataTypes.LongType;
import static org.apache.spark.sql.types.DataTypes.StringType;

import io.laketx.spark.define.Tables;
import io.laketx.spark.metadata.Rows;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.write.ConflictPolicy;
import io.laketx.spark.write.Reruns;
import io.laketx.v1.AlterTableResponse;
import io.laketx.v1.Alteration;
import io.laketx.v1.ResolveVersionRequest;
import io.laketx.v1.Table;
import io.laketx.v1.UndropTableRequest;
import java.util.Comparator;
import java.util.List;
import java.util.function.ToLongFunction;
import org.apache.spark.sql.catalyst.InternalRow;

/** Procedures that change a table as a whole. */
final class Changing {
  private static final String AFTER_LOSS = "after a lost race: fail, or rerun; otherwise the session's setting";
  private static final String DONE = "table string, version bigint, restored_version bigint";

  private Changing() {}

  static List<LakeProcedure> all(Lake lake) {
    return List.of(
        new LakeProcedure("restore", "Brings back the rows of a version (not its columns), as a new commit.")
            .takesTable()
            .mayTakeVersion()
            .mayTake("message", StringType, "''", "what for, as the history shows it")
            .mayTake("on_conflict", StringType, "''", AFTER_LOSS)
            .answers(DONE)
            .does(given -> restore(lake, given)),
        new LakeProcedure("rollback", "Takes back the newest commits that changed data, as a new commit.")
            .takesTable()
            .mayTake("commits", LongType, "1", "how many; compactions and ALTERs don't count")
            .mayTake("message", StringType, "''", "what for, as the history shows it")
            .mayTake("on_conflict", StringType, "''", AFTER_LOSS)
            .answers(DONE)
            .does(given -> rollback(lake, given)),
        new LakeProcedure("undrop", "Brings back the table of that name that was dropped last.")
            .takesTable()
            .answers("table string, version bigint")
            .does(given -> undrop(lake, given)),
        new LakeProcedure("set_profile", "Sets the rules by which a table's commits are judged.")
            .takesTable()
            .takes("profile", StringType, "maxcompute, delta_serializable, delta_write_serializable or row_level")
            .answers("table string, profile string, version bigint")
            .does(given -> setProfile(lake, given)));
  }

  private static List<InternalRow> restore(Lake lake, Arguments given) {
    if (!given.has("version") && !given.has("time") && !given.has("tag")) {
      throw LakeException.invalid("VERSION_INVALID", "say one of version, time and tag");
    }
    return restored(lake, given, table -> lake.version(table, given));
  }

  private static List<InternalRow> rollback(Lake lake, Arguments given) {
    long commits = given.has("commits") ? given.number("commits") : 1;
    if (commits < 1) {
      throw LakeException.invalid("VERSION_INVALID", "commits is " + commits + ": give a whole number from 1");
    }
    ResolveVersionRequest.Builder ago = ResolveVersionRequest.newBuilder().setCommitsAgo(commits);
    return restored(lake, given, table -> lake.resolve(ago.setTableId(table.getTableId())));
  }

  /** `resolve`: the version whose rows come back, of the table as it is at an attempt. */
  private static List<InternalRow> restored(Lake lake, Arguments given, ToLongFunction<Table> resolve) {
    for (int attempt = 1; ; attempt++) {
      Table table = lake.table(given);
      ConflictPolicy policy = ConflictPolicy.ofProcedure(given.text("on_conflict"), table);
      long version = resolve.applyAsLong(table);
      try {
        long made = Restore.of(lake.service(), table, version, given.text("message"));
        return List.of(Rows.of(table.getName(), made, version));
      } catch (LakeException lost) {
        Reruns.pause(policy, attempt, lost);
      }
    }
  }

  private static List<InternalRow> undrop(Lake lake, Arguments given) {
    String name = lake.name(given);
    Table last =
        Tables.list(lake.service(), "", "", true).stream()
            .filter(one -> one.hasDropTimeUs() && one.getName().equalsIgnoreCase(name))
            .max(Comparator.comparingLong(Table::getDropTimeUs))
            .orElseThrow(
                () -> LakeException.invalid("TABLE_UNKNOWN", "no table " + name + " was dropped that could come back"));
    UndropTableRequest request = UndropTableRequest.newBuilder().setTableId(last.getTableId()).build();
    Table back = lake.service().ask(stubs -> stubs.catalog().undropTable(request)).getTable();
    return List.of(Rows.of(back.getName(), back.getHeadVersion()));
  }

  private static List<InternalRow> setProfile(Lake lake, Arguments given) {
    Alteration wanted = Alteration.newBuilder().setProfile(given.text("profile")).build();
    AlterTableResponse done = Tables.alter(lake.service(), lake.table(given), wanted);
    return List.of(Rows.of(done.getTable().getName(), done.getTable().getProfile(), done.getVersion()));
  }
}
