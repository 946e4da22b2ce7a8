package io.laketx.spark.procedures;

import static org.apache.spark.sql.types.DataTypes.BooleanType;
import static org.apache.spark.sql.types.DataTypes.LongType;
import static org.apache.spark.sql.types.DataTypes.StringType;

import io.laketx.spark.metadata.Rows;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.ListPurgeableRequest;
import io.laketx.v1.ListPurgeableResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;

/** What a purge would delete. The deletion itself asks storage as well as the service, and is a command. */
final class Purging {
  private Purging() {}

  static List<LakeProcedure> all(Lake lake) {
    return List.of(
        new LakeProcedure("purge", "Lists the files that no kept version needs; `laketx purge run` deletes them.")
            .mayTake("table", StringType, "NULL", "the table, such as 'shop.orders'; NULL: all, dropped ones too")
            .mayTake("dry_run", BooleanType, "true", "nothing else is possible here")
            .mayTake("limit", LongType, "1000", "how many files")
            .answers("table_id string, table string, path string")
            .does(given -> purge(lake, given)));
  }

  private static List<InternalRow> purge(Lake lake, Arguments given) {
    if (given.has("dry_run") && !given.flag("dry_run")) {
      throw LakeException.invalid(
          "PURGE_REFUSED",
          "CALL purge only lists files: `laketx purge run` deletes them, and checks before that the warehouse is the "
              + "service's own");
    }
    long limit = Lake.limit(given);
    if (given.has("table")) return files(lake, lake.table(given).getTableId(), lake.name(given), limit);
    Map<String, String> names = lake.namesById();
    List<InternalRow> found = new ArrayList<>();
    for (String id : tables(lake)) found.addAll(files(lake, id, names.get(id), limit));
    return found.size() > limit ? found.subList(0, (int) limit) : found;
  }

  private static List<InternalRow> files(Lake lake, String tableId, String name, long limit) {
    ListPurgeableRequest.Builder request =
        ListPurgeableRequest.newBuilder().setTableId(tableId).setPageSize(Lake.pageSize(limit));
    return Lake.pages(
        limit,
        token -> {
          ListPurgeableRequest page = request.setPageToken(token).build();
          ListPurgeableResponse answer = lake.service().ask(stubs -> stubs.maintenance().listPurgeable(page));
          List<InternalRow> rows = answer.getPathsList().stream().map(path -> Rows.of(tableId, name, path)).toList();
          return new Lake.Page(rows, answer.getNextPageToken());
        });
  }

  private static List<String> tables(Lake lake) {
    List<String> found = new ArrayList<>();
    ListPurgeableRequest.Builder request = ListPurgeableRequest.newBuilder().setPageSize(Lake.PAGE);
    do {
      ListPurgeableRequest page = request.build();
      ListPurgeableResponse answer = lake.service().ask(stubs -> stubs.maintenance().listPurgeable(page));
      found.addAll(answer.getTableIdsList());
      request.setPageToken(answer.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return found;
  }
}
