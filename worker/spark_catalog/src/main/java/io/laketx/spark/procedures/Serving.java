package io.laketx.spark.procedures;

import static org.apache.spark.sql.types.DataTypes.StringType;
import static org.apache.spark.sql.types.DataTypes.createArrayType;

import io.laketx.spark.metadata.Rows;
import io.laketx.spark.service.Ids;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.ListTasksRequest;
import io.laketx.v1.ListTasksResponse;
import io.laketx.v1.MaintenanceTask;
import io.laketx.v1.Operation;
import io.laketx.v1.RequestTaskRequest;
import io.laketx.v1.RequestTaskResponse;
import io.laketx.v1.RowOrder;
import io.laketx.v1.TaskGroup;
import io.laketx.v1.TaskOptions;
import io.laketx.v1.TaskState;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;

/** Procedures for compaction: the service plans tasks, and workers run them. */
final class Serving {
  private static final String TASKS =
      "task_id string, operation string, state string, files bigint, rows bigint, bytes bigint, reason string,"
          + " attempts int, error string, worker string, create_time timestamp, end_time timestamp, txn_id string";
  private static final Map<String, Operation> OPERATIONS =
      Map.of(
          "minor", Operation.OPERATION_MINOR_COMPACT,
          "major", Operation.OPERATION_MAJOR_COMPACT,
          "cluster", Operation.OPERATION_CLUSTER);
  private static final List<TaskState> STATES =
      Arrays.stream(TaskState.values())
          .filter(one -> one != TaskState.UNRECOGNIZED && one != TaskState.TASK_STATE_UNSPECIFIED)
          .toList();

  private Serving() {}

  static List<LakeProcedure> all(Lake lake) {
    return List.of(
        new LakeProcedure("compact", "Requests a compaction: queues its tasks, which workers run.")
            .takesTable()
            .mayTake(
                "operation",
                StringType,
                "'minor'",
                "minor joins small files, major rewrites what has hidden rows or deltas, cluster orders rows")
            .mayTake("sort_by", createArrayType(StringType), "NULL", "cluster: columns, one after the other")
            .mayTake("zorder_by", createArrayType(StringType), "NULL", "cluster: columns, all alike")
            .answers(TASKS)
            .does(given -> compact(lake, given)),
        new LakeProcedure("tasks", "Lists a table's compaction tasks, oldest first.")
            .takesTable()
            .answers(TASKS)
            .does(given -> tasks(lake, given)));
  }

  private static List<InternalRow> compact(Lake lake, Arguments given) {
    Operation operation = OPERATIONS.get(given.text("operation").toLowerCase(Locale.ROOT));
    if (operation == null) {
      throw LakeException.invalid(
          "OPERATION_INVALID", "operation is '" + given.text("operation") + "': say minor, major or cluster");
    }
    RequestTaskRequest request =
        RequestTaskRequest.newBuilder()
            .setRequestId(Ids.uuid7())
            .setTableId(lake.table(given).getTableId())
            .setOperation(operation)
            .setOptions(options(given, operation))
            .setPrincipal(lake.service().principal())
            .build();
    RequestTaskResponse answer = lake.service().ask(stubs -> stubs.maintenance().requestTask(request));
    return answer.getTasksList().stream().map(Serving::row).toList();
  }

  private static TaskOptions options(Arguments given, Operation operation) {
    List<String> sort = given.texts("sort_by");
    List<String> zorder = given.texts("zorder_by");
    if (!sort.isEmpty() && !zorder.isEmpty()) {
      throw LakeException.invalid("ORDER_INVALID", "say sort_by or zorder_by, not both");
    }
    if (sort.isEmpty() && zorder.isEmpty()) return TaskOptions.getDefaultInstance();
    if (operation != Operation.OPERATION_CLUSTER) {
      throw LakeException.invalid("ORDER_INVALID", "only operation => 'cluster' orders rows");
    }
    return TaskOptions.newBuilder()
        .setOrder(sort.isEmpty() ? RowOrder.ROW_ORDER_ZORDER : RowOrder.ROW_ORDER_SORT)
        .addAllOrderColumns(sort.isEmpty() ? zorder : sort)
        .build();
  }

  private static List<InternalRow> tasks(Lake lake, Arguments given) {
    ListTasksRequest.Builder request =
        ListTasksRequest.newBuilder()
            .setTableId(lake.table(given).getTableId())
            .addAllStates(STATES)
            .setPageSize(Lake.PAGE);
    return Lake.pages(
        Integer.MAX_VALUE,
        token -> {
          ListTasksRequest page = request.setPageToken(token).build();
          ListTasksResponse answer = lake.service().ask(stubs -> stubs.maintenance().listTasks(page));
          return new Lake.Page(answer.getTasksList().stream().map(Serving::row).toList(), answer.getNextPageToken());
        });
  }

  private static InternalRow row(MaintenanceTask one) {
    return Rows.of(
        one.getTaskId(),
        Rows.word(one.getOperation(), "OPERATION_").replace("_compact", ""),
        Rows.word(one.getState(), "TASK_STATE_"),
        one.getGroupsList().stream().mapToLong(TaskGroup::getFiles).sum(),
        one.getGroupsList().stream().mapToLong(TaskGroup::getRows).sum(),
        one.getGroupsList().stream().mapToLong(TaskGroup::getBytes).sum(),
        Rows.orNull(one.getReason()),
        one.getAttempts(),
        Rows.orNull(one.getError()),
        Rows.orNull(one.getWorker().getName()),
        one.getCreateTimeUs(),
        one.getEndTimeUs() == 0 ? null : one.getEndTimeUs(),
        Rows.orNull(one.getTxnId()));
  }
}
