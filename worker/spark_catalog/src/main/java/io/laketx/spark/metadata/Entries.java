package io.laketx.spark.metadata;

import io.laketx.spark.read.Snapshot;
import io.laketx.v1.Column;
import io.laketx.v1.DataFile;
import io.laketx.v1.DeleteSet;
import io.laketx.v1.ListFilesRequest;
import io.laketx.v1.LiveEntry;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.InternalRow;

/** What is live at a version. */
final class Entries {
  private Entries() {}

  static List<InternalRow> files(Snapshot of) {
    Set<String> instants = instants(of);
    List<InternalRow> found = new ArrayList<>();
    for (LiveEntry one : live(of)) {
      if (one.hasFile()) {
        DataFile file = one.getFile();
        found.add(
            Rows.of(
                "data",
                file.getPath(),
                Rows.partition(file.getPartition(), instants),
                file.getBucket(),
                of.isKeyed() ? Rows.word(file.getKind(), "FILE_KIND_") : null,
                file.getRows(),
                file.getBytes(),
                one.getDataVersion(),
                one.getAddedVersion(),
                file.getSchemaVersion(),
                file.hasFirstRowId() ? file.getFirstRowId() : null,
                file.getTombstones(),
                file.getExternal(),
                Rows.orNull(file.getRowOrder()),
                file.getInlined()));
      } else {
        DeleteSet set = one.getDeleteSet();
        found.add(
            Rows.of(
                "delete set",
                set.getPath(),
                Rows.partition(set.getPartition(), instants),
                null,
                null,
                set.getRows(),
                set.getBitmap().isEmpty() ? set.getBytes() : (long) set.getBitmap().size(),
                one.getDataVersion(),
                one.getAddedVersion(),
                null,
                null,
                null,
                false,
                null,
                false));
      }
    }
    return found;
  }

  private static final class Sums {
    long files;
    long rows;
    long bytes;
    long deleteSets;
    long rowsHidden;
  }

  static List<InternalRow> partitions(Snapshot of) {
    Set<String> instants = instants(of);
    Map<Map<String, String>, Sums> sums = new LinkedHashMap<>();
    for (LiveEntry one : live(of)) {
      var partition = one.hasFile() ? one.getFile().getPartition() : one.getDeleteSet().getPartition();
      Sums mine = sums.computeIfAbsent(Rows.partition(partition, instants), none -> new Sums());
      if (one.hasFile()) {
        mine.files++;
        mine.rows += one.getFile().getRows();
        mine.bytes += one.getFile().getBytes();
      } else {
        mine.deleteSets++;
        mine.rowsHidden += one.getDeleteSet().getRows();
      }
    }
    List<InternalRow> found = new ArrayList<>();
    sums.forEach(
        (partition, mine) ->
            found.add(Rows.of(partition, mine.files, mine.rows, mine.bytes, mine.deleteSets, mine.rowsHidden)));
    return found;
  }

  private static Set<String> instants(Snapshot of) {
    return of.meta().getColumnsList().stream()
        .filter(one -> one.getType().equals("timestamp"))
        .map(Column::getName)
        .collect(Collectors.toSet());
  }

  private static List<LiveEntry> live(Snapshot of) {
    ListFilesRequest request =
        ListFilesRequest.newBuilder().setTableId(of.tableId()).setVersion(of.version()).build();
    return of.service()
        .ask(
            stubs -> {
              List<LiveEntry> found = new ArrayList<>();
              stubs.reads().listFiles(request).forEachRemaining(part -> found.addAll(part.getEntriesList()));
              return found;
            });
  }
}
