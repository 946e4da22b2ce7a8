package io.laketx.spark.changes;

import io.laketx.spark.changes.Range.Looker;
import io.laketx.v1.Column;
import io.laketx.v1.GetTableRequest;
import io.laketx.v1.ListVersionsRequest;
import io.laketx.v1.ListVersionsResponse;
import io.laketx.v1.Table;
import io.laketx.v1.Version;
import io.laketx.v1.VersionFilter;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.TreeSet;

/** A commit that changed a table's metadata: which one, and what it changed. */
final class MetadataChange {
  private static final int PAGE = 500;

  private MetadataChange() {}

  /** The first such version in (begin, end]. */
  static Optional<Long> first(Looker look, long begin, long end) {
    VersionFilter range = VersionFilter.newBuilder().setFromVersion(begin + 1).setToVersion(end).build();
    ListVersionsRequest.Builder request =
        ListVersionsRequest.newBuilder().setTableId(look.tableId()).setPageSize(PAGE).setFilter(range);
    Optional<Long> found = Optional.empty();
    do {
      ListVersionsRequest page = request.build();
      ListVersionsResponse answer = look.service().ask(stubs -> stubs.reads().listVersions(page));
      for (Version one : answer.getVersionsList()) { // newest first
        if (one.getMetadataChanged()) found = Optional.of(one.getVersion());
      }
      request.setPageToken(answer.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return found;
  }

  /** What is another one at a version than it was before. */
  static String words(Looker look, Table before, long version) {
    GetTableRequest request = GetTableRequest.newBuilder().setTableId(look.tableId()).setVersion(version).build();
    Table after = look.service().ask(stubs -> stubs.catalog().getTable(request)).getTable();
    List<String> found = new ArrayList<>();
    if (!asRead(before).equals(asRead(after))) found.add("the columns");
    boolean isLaidOutAlike =
        before.getPartitionColumnsList().equals(after.getPartitionColumnsList())
            && before.getPrimaryKeyList().equals(after.getPrimaryKeyList())
            && before.getBuckets() == after.getBuckets();
    if (!isLaidOutAlike) found.add("the key, the partitions or the buckets");
    if (!Objects.equals(before.getProfile(), after.getProfile())) found.add("the profile");
    if (!before.getFeaturesList().equals(after.getFeaturesList())) found.add("the features");
    TreeSet<String> names = new TreeSet<>(before.getPropertiesMap().keySet());
    names.addAll(after.getPropertiesMap().keySet());
    names.removeIf(
        name -> Objects.equals(before.getPropertiesMap().get(name), after.getPropertiesMap().get(name)));
    if (!names.isEmpty()) found.add((names.size() == 1 ? "the property " : "the properties ") + String.join(", ", names));
    return found.isEmpty() ? "the table's metadata" : String.join(", ", found);
  }

  private static List<Column> asRead(Table table) {
    return table.getColumnsList().stream().map(one -> one.toBuilder().clearComment().clearDefaultSql().build()).toList();
  }
}
