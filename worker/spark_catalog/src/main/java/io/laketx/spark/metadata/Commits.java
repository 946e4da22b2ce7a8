package io.laketx.spark.metadata;

import io.laketx.spark.read.Snapshot;
import io.laketx.v1.ListTagsRequest;
import io.laketx.v1.ListTagsResponse;
import io.laketx.v1.ListTransactionsRequest;
import io.laketx.v1.ListTransactionsResponse;
import io.laketx.v1.ListVersionsRequest;
import io.laketx.v1.ListVersionsResponse;
import io.laketx.v1.Tag;
import io.laketx.v1.TableCommit;
import io.laketx.v1.TableIntent;
import io.laketx.v1.Transaction;
import io.laketx.v1.Version;
import io.laketx.v1.VersionFilter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;

/** What happened to a table, newest first. */
public final class Commits {
  private static final int PAGE = 1_000;
  private static final String OPERATION = "OPERATION_";

  private Commits() {}

  static List<InternalRow> history(Snapshot of) {
    List<InternalRow> found = new ArrayList<>();
    for (Version one : versions(of)) found.add(row(one));
    return found;
  }

  /** In `history`. */
  public static InternalRow row(Version one) {
    return Rows.of(
        one.getVersion(),
        one.getCommitTimeUs(),
        one.hasTimeVersionUs() ? one.getTimeVersionUs() : null,
        Rows.word(one.getOperation(), OPERATION),
        Rows.orNull(one.getTxnId()),
        Rows.orNull(one.getPrincipal().getName()),
        Rows.orNull(one.getPrincipal().getClient()),
        Rows.orNull(one.getCommitMessage()),
        one.getReadVersion(),
        one.getRebasedOver(),
        one.getFilesAdded(),
        one.getFilesRemoved(),
        one.getRowsAdded(),
        one.getRowsRemoved(),
        one.getBytesAdded(),
        one.getBytesRemoved(),
        one.getDeleteSetsAdded(),
        one.getDeleteSetsRemoved(),
        one.getPropertiesMap());
  }

  static List<InternalRow> snapshots(Snapshot of) {
    Map<Long, List<String>> tags = new HashMap<>();
    for (Tag one : listTags(of)) tags.computeIfAbsent(one.getVersion(), none -> new ArrayList<>()).add(one.getName());
    List<InternalRow> found = new ArrayList<>();
    for (Version one : versions(of)) {
      found.add(
          Rows.of(
              one.getVersion(),
              one.getCommitTimeUs(),
              one.hasTimeVersionUs() ? one.getTimeVersionUs() : null,
              Rows.word(one.getOperation(), OPERATION),
              tags.getOrDefault(one.getVersion(), List.of())));
    }
    return found;
  }

  static List<InternalRow> tags(Snapshot of) {
    List<InternalRow> found = new ArrayList<>();
    for (Tag one : listTags(of)) found.add(row(one));
    return found;
  }

  /** In `tags`. */
  public static InternalRow row(Tag one) {
    return Rows.of(
        one.getName(),
        one.getVersion(),
        Rows.orNull(one.getComment()),
        Rows.orNull(one.getPrincipal().getName()),
        one.getCreateTimeUs());
  }

  static List<InternalRow> transactions(Snapshot of) {
    List<InternalRow> found = new ArrayList<>();
    ListTransactionsRequest.Builder request =
        ListTransactionsRequest.newBuilder().setTableId(of.tableId()).setPageSize(PAGE);
    do {
      ListTransactionsRequest page = request.build();
      ListTransactionsResponse answer = of.service().ask(stubs -> stubs.transactions().listTransactions(page));
      for (Transaction one : answer.getTransactionsList()) found.add(row(of.tableId(), one));
      request.setPageToken(answer.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return found;
  }

  /** In a table's `transactions`. */
  public static InternalRow row(String tableId, Transaction one) {
    String operation = null;
    for (TableIntent intent : one.getTablesList()) {
      if (intent.getTableId().equals(tableId)) operation = Rows.word(intent.getOperation(), OPERATION);
    }
    Long version = null;
    for (TableCommit commit : one.getCommitted().getTablesList()) {
      if (commit.getTableId().equals(tableId)) version = commit.getVersion();
    }
    String reason = one.hasConflict() ? one.getConflict().getMessage() : Rows.orNull(one.getAbortReason());
    return Rows.of(
        one.getTxnId(),
        Rows.word(one.getState(), "TRANSACTION_STATE_"),
        operation,
        Rows.orNull(one.getPrincipal().getName()),
        Rows.orNull(one.getPrincipal().getClient()),
        Rows.orNull(one.getCommitMessage()),
        one.getBeginTimeUs(),
        one.getEndTimeUs() == 0 ? null : one.getEndTimeUs(),
        version,
        reason);
  }

  /** Up to the snapshot's. */
  private static List<Version> versions(Snapshot of) {
    List<Version> found = new ArrayList<>();
    VersionFilter filter = VersionFilter.newBuilder().setToVersion(of.version()).build();
    ListVersionsRequest.Builder request =
        ListVersionsRequest.newBuilder().setTableId(of.tableId()).setPageSize(PAGE).setFilter(filter);
    do {
      ListVersionsRequest page = request.build();
      ListVersionsResponse answer = of.service().ask(stubs -> stubs.reads().listVersions(page));
      found.addAll(answer.getVersionsList());
      request.setPageToken(answer.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return found;
  }

  private static List<Tag> listTags(Snapshot of) {
    List<Tag> found = new ArrayList<>();
    ListTagsRequest.Builder request = ListTagsRequest.newBuilder().setTableId(of.tableId()).setPageSize(PAGE);
    do {
      ListTagsRequest page = request.build();
      ListTagsResponse answer = of.service().ask(stubs -> stubs.reads().listTags(page));
      found.addAll(answer.getTagsList());
      request.setPageToken(answer.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return found;
  }
}
