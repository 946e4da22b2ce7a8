package io.laketx.spark.write;

import io.laketx.spark.read.ImageFold;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.write.SparkPlans.Updated;
import io.laketx.v1.Column;
import io.laketx.v1.ColumnStats;
import io.laketx.v1.DataFile;
import io.laketx.v1.Table;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;

/**
 * The columns that the images of an UPDATE, MERGE or INSERT set, in a table whose images may set single columns.
 *
 * @param ids of the columns that are set
 * @param kept where the columns are that an image of a row that is there has: those, and the ones that no image lacks
 * @param areNewWhole whether a new row sets all columns
 */
record SetColumns(List<Integer> ids, int[] kept, boolean areNewWhole) implements Serializable {

  /** Null where its images are whole: it sets every column, moves rows, or can't be seen. */
  static SetColumns of(Snapshot snapshot, Updated updated) {
    Table meta = snapshot.meta();
    if (!snapshot.isPartial() || updated == null || updated.set().isEmpty()) return null;
    if (meta.getPartitionColumnsList().stream().anyMatch(updated.set()::contains)) return null;
    Set<String> everywhere = everywhere(meta);
    if (everywhere.size() + updated.set().size() == meta.getColumnsCount()) return null;
    List<Integer> ids = new ArrayList<>();
    List<Integer> kept = new ArrayList<>();
    for (int at = 0; at < meta.getColumnsCount(); at++) {
      Column one = meta.getColumns(at);
      boolean isSet = updated.set().contains(one.getName());
      if (isSet) ids.add(one.getColumnId());
      if (isSet || everywhere.contains(one.getName()) || !one.getNullable()) kept.add(at);
    }
    return new SetColumns(ids, kept.stream().mapToInt(at -> at).toArray(), false);
  }

  /** Of an INSERT whose rows have columns of these names, in lower case; null where its images are whole. */
  static SetColumns given(Table meta, Set<String> names) {
    Set<String> everywhere = everywhere(meta);
    List<Column> others = meta.getColumnsList().stream().filter(one -> !everywhere.contains(one.getName())).toList();
    List<Integer> ids =
        others.stream().filter(one -> names.contains(one.getName().toLowerCase(Locale.ROOT))).map(Column::getColumnId).toList();
    return ids.size() == others.size() ? null : new SetColumns(List.copyOf(ids), new int[0], false);
  }

  /** The ids of the columns whose values the UPDATE uses, for its reads to declare; none: any. */
  static List<Integer> used(Table meta, Updated updated) {
    if (updated.used() == null) return List.of();
    Set<String> used = new HashSet<>(updated.used());
    used.addAll(meta.getPrimaryKeyList());
    return meta.getColumnsList().stream().filter(one -> used.contains(one.getName())).map(Column::getColumnId).toList();
  }

  private static Set<String> everywhere(Table meta) {
    Set<String> found = new HashSet<>(meta.getPrimaryKeyList());
    found.addAll(meta.getPartitionColumnsList());
    return found;
  }

  SetColumns withWholeNewRows() {
    return new SetColumns(ids, kept, true);
  }

  byte[] bits() {
    return ids.isEmpty() ? new byte[0] : ImageFold.bits(ids);
  }

  /** An image of a row that is there. */
  InternalRow image(InternalRow row, DataType[] types) {
    GenericInternalRow found = new GenericInternalRow(types.length);
    for (int at : kept) found.update(at, row.isNullAt(at) ? null : row.get(at, types[at]));
    return found;
  }

  /** Statistics are those of images, not of rows, but for key and partition. `hasNew`: some image may make a row. */
  void tell(DataFile.Builder entry, Table meta, boolean hasNew) {
    Set<String> everywhere = everywhere(meta);
    Set<Integer> known = new HashSet<>();
    Set<Integer> all = new TreeSet<>();
    for (Column one : meta.getColumnsList()) {
      all.add(one.getColumnId());
      if (everywhere.contains(one.getName())) known.add(one.getColumnId());
    }
    List<ColumnStats> stats = entry.getStatsList().stream().filter(one -> known.contains(one.getColumnId())).toList();
    entry.clearStats().addAllStats(stats);
    entry.setNoNewRows(!hasNew);
    if (entry.getTombstones() > 0 || (hasNew && areNewWhole)) entry.addAllSetColumns(all);
    else if (ids.isEmpty()) entry.addSetColumns(WireValues.column(meta, meta.getPrimaryKey(0)).getColumnId()); // not whole
    else entry.addAllSetColumns(ids);
  }
}
