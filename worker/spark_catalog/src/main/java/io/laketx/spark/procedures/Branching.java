package io.laketx.spark.procedures;

import static org.apache.spark.sql.types.DataTypes.BooleanType;
import static org.apache.spark.sql.types.DataTypes.LongType;
import static org.apache.spark.sql.types.DataTypes.StringType;
import static org.apache.spark.sql.types.DataTypes.createArrayType;

import io.laketx.spark.BranchSetting;
import io.laketx.spark.define.Tables;
import io.laketx.spark.metadata.Rows;
import io.laketx.spark.service.Ids;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Branch;
import io.laketx.v1.BranchName;
import io.laketx.v1.CloneTableRequest;
import io.laketx.v1.CreateBranchRequest;
import io.laketx.v1.DropBranchRequest;
import io.laketx.v1.DropBranchResponse;
import io.laketx.v1.ListBranchesRequest;
import io.laketx.v1.ListBranchesResponse;
import io.laketx.v1.MergeBranchRequest;
import io.laketx.v1.MergeBranchResponse;
import io.laketx.v1.MergedTable;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.internal.SQLConf;

/** Procedures for branches and clones. */
final class Branching {
  private static final long HOUR_MS = 3_600_000;
  private static final long HOURS_MAX = 366 * 24;
  private static final String BRANCHES =
      "name string, parent string, time timestamp, user string, comment string, expire_time timestamp";
  private static final String MERGED =
      "table string, commits int, version bigint, fast_forward boolean, refusal string";

  private Branching() {}

  static List<LakeProcedure> all(Lake lake) {
    return List.of(
        new LakeProcedure("branches", "Lists the branches, by name.")
            .answers(BRANCHES)
            .does(given -> branches(lake)),
        new LakeProcedure("create_branch", "Makes a branch: every table as it is now, to change apart.")
            .takes("name", StringType, "the branch's name")
            .mayTake("parent", StringType, "''", "the branch that it leaves; the lake itself if none is given")
            .mayTake("keep_hours", LongType, "168", "how long it lives")
            .mayTake("comment", StringType, "''", "what for")
            .answers(BRANCHES)
            .does(given -> create(lake, given)),
        new LakeProcedure("merge_branch", "Commits to the parent what was committed on a branch: all of it, or nothing.")
            .takes("name", StringType, "the branch's name")
            .mayTake("checks", createArrayType(StringType), "NULL", "queries on the branch that must answer true")
            .mayTake("keep", BooleanType, "false", "keep the branch: the merge is its new fork point")
            .mayTake("dry_run", BooleanType, "false", "show what a merge would do, and change nothing")
            .answers(MERGED)
            .does(given -> merge(lake, given)),
        new LakeProcedure("check_branch", "Runs checks on a branch, up to the first that does not hold.")
            .takes("name", StringType, "the branch's name")
            .takes("checks", createArrayType(StringType), "queries that must answer true")
            .answers("check string, answer string, holds boolean")
            .does(given -> check(lake, given)),
        new LakeProcedure("drop_branch", "Drops a branch with what was committed on it.")
            .takes("name", StringType, "the branch's name")
            .answers("dropped boolean, ended_transactions int")
            .does(given -> drop(lake, given)),
        new LakeProcedure("clone_table", "Makes a table that begins as another one is, or was; nothing is copied.")
            .takesTable()
            .takes("name", StringType, "the clone's name")
            .mayTakeVersion()
            .mayTake("if_not_exists", BooleanType, "false", "leave a table of that name as it is")
            .answers("table string, version bigint")
            .does(given -> cloneTable(lake, given)));
  }

  private static List<InternalRow> branches(Lake lake) {
    ListBranchesRequest.Builder request = ListBranchesRequest.newBuilder().setPageSize(Lake.PAGE);
    return Lake.pages(
        Integer.MAX_VALUE,
        token -> {
          ListBranchesRequest page = request.setPageToken(token).build();
          ListBranchesResponse answer = lake.service().ask(stubs -> stubs.catalog().listBranches(page));
          return new Lake.Page(
              answer.getBranchesList().stream().map(Branching::row).toList(), answer.getNextPageToken());
        });
  }

  private static InternalRow row(Branch one) {
    return Rows.of(
        one.getName(),
        Rows.orNull(one.getParent()),
        one.getTimeUs(),
        Rows.orNull(one.getPrincipal().getName()),
        Rows.orNull(one.getComment()),
        one.getExpireTimeUs() == 0 ? null : one.getExpireTimeUs());
  }

  private static List<InternalRow> create(Lake lake, Arguments given) {
    long hours = given.has("keep_hours") ? given.number("keep_hours") : 0;
    if (hours < 0 || hours > HOURS_MAX) {
      throw LakeException.invalid("KEEP_INVALID", "keep_hours is " + hours + ": give 1 to " + HOURS_MAX);
    }
    CreateBranchRequest request =
        CreateBranchRequest.newBuilder()
            .setRequestId(Ids.uuid7())
            .setName(given.text("name"))
            .setParent(given.text("parent"))
            .setKeepMs(hours * HOUR_MS)
            .setComment(given.text("comment"))
            .setPrincipal(lake.service().principal())
            .build();
    return List.of(row(lake.service().ask(stubs -> stubs.catalog().createBranch(request)).getBranch()));
  }

  private static List<InternalRow> drop(Lake lake, Arguments given) {
    DropBranchRequest request = DropBranchRequest.newBuilder().setName(given.text("name")).build();
    DropBranchResponse done = lake.service().ask(stubs -> stubs.catalog().dropBranch(request));
    return List.of(Rows.of(done.getDropped(), done.getEndedTransactions()));
  }

  // -- merges

  private static List<InternalRow> merge(Lake lake, Arguments given) {
    String name = given.text("name");
    require(results(lake, name, given.texts("checks")), name, "");
    MergeBranchRequest.Builder request =
        MergeBranchRequest.newBuilder()
            .setTxnId(Ids.uuid7())
            .setName(name)
            .setPrincipal(lake.service().principal())
            .setKeep(given.flag("keep"))
            .setValidateOnly(given.flag("dry_run"));
    MergeBranchResponse answer = sent(lake, request);
    while (lacksChecks(answer)) {
      for (MergedTable one : answer.getTablesList()) {
        if (one.getChecksList().isEmpty()) continue;
        require(results(lake, name, one.getChecksList()), name, " of the table " + one.getName());
        request.addCheckedTableIds(one.getTableId());
      }
      answer = sent(lake, request);
    }
    if (!answer.getMerged() && !given.flag("dry_run")) {
      String lost =
          answer.getTablesList().stream()
              .filter(Branching::fails)
              .map(Branching::refusal)
              .collect(Collectors.joining("; "));
      for (BranchName one : answer.getNamesList()) {
        if (!one.getReason().isEmpty()) lost += (lost.isEmpty() ? "" : "; ") + refusal(one);
      }
      throw LakeException.invalid("MERGE_REFUSED", "the branch " + name + " can't be merged: " + lost);
    }
    List<InternalRow> found = new ArrayList<>();
    for (MergedTable one : answer.getTablesList()) {
      String refusal = fails(one) ? refusal(one) : null;
      found.add(Rows.of(one.getName(), one.getCommits(), one.getVersion(), one.getFastForward(), refusal));
    }
    for (BranchName one : answer.getNamesList()) {
      String refusal = one.getReason().isEmpty() ? null : refusal(one);
      found.add(Rows.of(one.getKind() + " " + one.getName(), null, null, null, refusal));
    }
    return found;
  }

  private static MergeBranchResponse sent(Lake lake, MergeBranchRequest.Builder request) {
    MergeBranchRequest whole = request.build();
    return lake.service().ask(stubs -> stubs.catalog().mergeBranch(whole));
  }

  /** Whether nothing but checks that were not run stops the merge. */
  private static boolean lacksChecks(MergeBranchResponse answer) {
    List<MergedTable> failed = answer.getTablesList().stream().filter(Branching::fails).toList();
    boolean isStopped = answer.getNamesList().stream().anyMatch(one -> !one.getReason().isEmpty());
    return !failed.isEmpty() && !isStopped && failed.stream().noneMatch(one -> one.getChecksList().isEmpty());
  }

  private static boolean fails(MergedTable one) {
    return one.hasConflict() || !one.getReason().isEmpty();
  }

  private static String refusal(MergedTable one) {
    return one.getName() + ": " + (one.hasConflict() ? one.getConflict().getMessage() : one.getMessage());
  }

  private static String refusal(BranchName one) {
    return "the " + one.getKind() + " " + one.getName() + ": " + one.getMessage();
  }

  // -- checks

  private record Result(String check, String answer, boolean holds) {}

  private static List<InternalRow> check(Lake lake, Arguments given) {
    return results(lake, given.text("name"), given.texts("checks")).stream()
        .map(one -> Rows.of(one.check, one.answer, one.holds))
        .toList();
  }

  /** Up to the first one that does not hold. Names of tables without a branch are the branch's. */
  private static List<Result> results(Lake lake, String branch, List<String> checks) {
    List<Result> found = new ArrayList<>();
    if (checks.isEmpty()) return found;
    var session = ((org.apache.spark.sql.classic.SparkSession) SparkSession.active()).cloneSession();
    session.conf().set(BranchSetting.SESSION, branch);
    session.sessionState().catalogManager().setCurrentCatalog(lake.catalog());
    for (String one : checks) {
      // CALL runs while its statement is analysed, under the settings of that
      List<Row> rows =
          SQLConf.withExistingConf(session.sessionState().conf(), () -> session.sql(one).takeAsList(2));
      boolean isOne = rows.size() == 1 && rows.get(0).length() == 1;
      boolean holds = isOne && Boolean.TRUE.equals(rows.get(0).get(0));
      String other = rows.isEmpty() ? "no row" : "more than one value";
      found.add(new Result(one, isOne ? String.valueOf(rows.get(0).get(0)) : other, holds));
      if (!holds) break;
    }
    return found;
  }

  private static void require(List<Result> results, String branch, String ofTable) {
    for (Result one : results) {
      if (one.holds) continue;
      throw LakeException.invalid(
          "CHECK_FAILED",
          "a check" + ofTable + " does not hold on the branch " + branch + ": " + one.check + " answered " + one.answer);
    }
  }

  // -- clones

  /** The version is looked up first: a repeated call must not mean a later one. */
  private static List<InternalRow> cloneTable(Lake lake, Arguments given) {
    Table source = lake.table(given);
    String name = lake.branch().on(lake.nameIn(given.text("name")));
    Table there = given.flag("if_not_exists") ? Tables.find(lake.service(), name) : null;
    if (there != null) return List.of(Rows.of(there.getName(), there.getHeadVersion()));
    CloneTableRequest request =
        CloneTableRequest.newBuilder()
            .setRequestId(Ids.uuid7())
            .setTableId(source.getTableId())
            .setVersion(lake.version(source, given))
            .setName(name)
            .setPrincipal(lake.service().principal())
            .build();
    Table made = lake.service().ask(stubs -> stubs.catalog().cloneTable(request)).getTable();
    return List.of(Rows.of(made.getName(), made.getHeadVersion()));
  }
}
