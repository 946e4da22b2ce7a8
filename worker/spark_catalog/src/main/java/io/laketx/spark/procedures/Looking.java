package io.laketx.spark.procedures;

import static org.apache.spark.sql.types.DataTypes.LongType;
import static org.apache.spark.sql.types.DataTypes.StringType;

import io.laketx.spark.metadata.Commits;
import io.laketx.spark.metadata.MetadataKind;
import io.laketx.spark.metadata.Rows;
import io.laketx.spark.write.WriteResult;
import io.laketx.spark.write.WriteResults;
import io.laketx.v1.Conflict;
import io.laketx.v1.GetTransactionRequest;
import io.laketx.v1.ListTransactionsRequest;
import io.laketx.v1.ListTransactionsResponse;
import io.laketx.v1.ListVersionsRequest;
import io.laketx.v1.ListVersionsResponse;
import io.laketx.v1.TableIntent;
import io.laketx.v1.Transaction;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;

/** Procedures that look at commits and transactions. */
final class Looking {
  private static final String WHY =
      "txn_id string, state string, tables array<string>, reason string, rule string, winner_txn_id string,"
          + " winner_operation string, winner_version bigint, winner_time timestamp, winner_user string,"
          + " partition string, read_version bigint, advice string";
  private static final String RESULT =
      "txn_id string, rows bigint, attempts int, answer binary, begin binary, files binary, commit binary";
  private static final Map<String, String> ADVICE =
      Map.of(
          "ADVICE_RESUBMIT", "run it again: the staged files can be reused",
          "ADVICE_RERUN", "run it again: it reads the newest version",
          "ADVICE_RELOAD", "load the table again: its schema or settings changed",
          "ADVICE_PLAN_AGAIN", "plan the compaction again, if it is still worthwhile");

  private Looking() {}

  static List<LakeProcedure> all(Lake lake) {
    return List.of(
        new LakeProcedure("history", "Lists a table's commits, newest first.")
            .takesTable()
            .mayTake("limit", LongType, "100", "how many commits")
            .answers(MetadataKind.HISTORY.schema())
            .does(given -> history(lake, given)),
        new LakeProcedure("transactions", "Lists a table's transactions, open and ended, newest first.")
            .takesTable()
            .mayTake("limit", LongType, "100", "how many transactions")
            .answers(MetadataKind.TRANSACTIONS.schema())
            .does(given -> transactions(lake, given)),
        new LakeProcedure("why", "Shows how a transaction ended, and to whom and by which rule it lost.")
            .takes("txn_id", StringType, "the transaction's id")
            .answers(WHY)
            .does(given -> why(lake, given)),
        new LakeProcedure("write_result", "Shows once how a write ended that had the option `result`.")
            .takes("id", StringType, "the option's value")
            .answers(RESULT)
            .does(given -> writeResult(given.text("id"))));
  }

  /** No row where there is no such write on this driver, or its result was taken already. */
  private static List<InternalRow> writeResult(String id) {
    WriteResult found = WriteResults.take(id);
    if (found == null) return List.of();
    return List.of(
        Rows.of(
            found.txnId(),
            found.rows(),
            found.attempts(),
            found.answer(),
            found.begin(),
            found.files(),
            found.commit()));
  }

  private static List<InternalRow> history(Lake lake, Arguments given) {
    String id = lake.table(given).getTableId();
    long limit = Lake.limit(given);
    ListVersionsRequest.Builder request =
        ListVersionsRequest.newBuilder().setTableId(id).setPageSize(Lake.pageSize(limit));
    return Lake.pages(
        limit,
        token -> {
          ListVersionsRequest page = request.setPageToken(token).build();
          ListVersionsResponse answer = lake.service().ask(stubs -> stubs.reads().listVersions(page));
          List<InternalRow> rows = answer.getVersionsList().stream().map(Commits::row).toList();
          return new Lake.Page(rows, answer.getNextPageToken());
        });
  }

  private static List<InternalRow> transactions(Lake lake, Arguments given) {
    String id = lake.table(given).getTableId();
    long limit = Lake.limit(given);
    ListTransactionsRequest.Builder request =
        ListTransactionsRequest.newBuilder().setTableId(id).setPageSize(Lake.pageSize(limit));
    return Lake.pages(
        limit,
        token -> {
          ListTransactionsRequest page = request.setPageToken(token).build();
          ListTransactionsResponse answer = lake.service().ask(stubs -> stubs.transactions().listTransactions(page));
          List<InternalRow> rows = answer.getTransactionsList().stream().map(one -> Commits.row(id, one)).toList();
          return new Lake.Page(rows, answer.getNextPageToken());
        });
  }

  private static List<InternalRow> why(Lake lake, Arguments given) {
    GetTransactionRequest request = GetTransactionRequest.newBuilder().setTxnId(given.text("txn_id")).build();
    Transaction one = lake.service().ask(stubs -> stubs.transactions().getTransaction(request)).getTransaction();
    Map<String, String> names = lake.namesById();
    List<String> tables =
        one.getTablesList().stream().map(TableIntent::getTableId).map(id -> names.getOrDefault(id, id)).toList();
    String state = Rows.word(one.getState(), "TRANSACTION_STATE_");
    if (!one.hasConflict()) {
      String reason = Rows.orNull(one.getAbortReason());
      return List.of(
          Rows.of(one.getTxnId(), state, tables, reason, null, null, null, null, null, null, null, null, null));
    }
    Conflict lost = one.getConflict();
    return List.of(
        Rows.of(
            one.getTxnId(),
            state,
            tables,
            Rows.orNull(lost.getMessage()),
            Rows.word(lost.getRule(), "CONFLICT_RULE_"),
            Rows.orNull(lost.getWinnerTxnId()),
            Rows.word(lost.getWinnerOperation(), "OPERATION_"),
            lost.getWinnerVersion(),
            lost.getWinnerCommitTimeUs(),
            Rows.orNull(lost.getWinnerPrincipal().getName()),
            Rows.orNull(lost.getPartition()),
            lost.getReadVersion(),
            ADVICE.get(lost.getAdvice().name())));
  }
}
