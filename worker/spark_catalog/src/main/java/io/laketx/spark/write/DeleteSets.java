package io.laketx.spark.write;

import com.google.protobuf.ByteString;
import io.laketx.spark.read.PartitionKey;
import io.laketx.v1.DataFile;
import io.laketx.v1.DeleteSet;
import io.laketx.v1.Limit;
import io.laketx.v1.RowIdRange;
import io.laketx.v1.Value;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.TreeSet;
import org.roaringbitmap.longlong.LongIterator;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/** Rows of an append table that a statement hides: a set of ids for each partition. */
final class DeleteSets {
  private static final int INLINE_BYTES_MAX = Limit.LIMIT_DELETE_SET_BYTES_VALUE; // a larger one is kept in a file
  private static final int TOUCHES_BYTES_MAX = Limit.LIMIT_TOUCHES_BYTES_VALUE; // beyond it is not said which files a set touches
  private static final int RANGES_MAX = Limit.LIMIT_ROW_RANGES_VALUE;

  private DeleteSets() {}

  static Roaring64NavigableMap read(byte[] bytes) {
    Roaring64NavigableMap found = new Roaring64NavigableMap();
    try {
      found.deserializePortable(new DataInputStream(new ByteArrayInputStream(bytes)));
      return found;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  static byte[] bytes(Roaring64NavigableMap ids) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    ids.runOptimize();
    try {
      ids.serializePortable(new DataOutputStream(bytes));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return bytes.toByteArray();
  }

  private record OfPartition(DataFile any, Roaring64NavigableMap ids, TreeSet<String> touches) {}

  /** `hidden` is by path, `files` are those that the statement read. */
  static List<DeleteSet> of(
      Map<String, Roaring64NavigableMap> hidden, Map<String, DataFile> files, String tableFolder, String txnId) {
    Map<Map<String, Value>, OfPartition> sets = new LinkedHashMap<>();
    hidden.forEach(
        (path, ids) -> {
          DataFile file = files.get(path);
          if (file == null) throw new IllegalStateException("a row of " + path + ", which was not read");
          OfPartition set =
              sets.computeIfAbsent(
                  PartitionKey.of(file.getPartition()),
                  none -> new OfPartition(file, new Roaring64NavigableMap(), new TreeSet<>()));
          set.ids.or(ids);
          set.touches.add(path);
        });
    List<DeleteSet> found = new ArrayList<>();
    for (OfPartition one : sets.values()) {
      found.add(made(one, txnId + "/deletes-" + found.size() + ".bin", tableFolder));
    }
    return found;
  }

  private static DeleteSet made(OfPartition set, String path, String tableFolder) {
    byte[] raw = bytes(set.ids);
    DeleteSet.Builder found =
        DeleteSet.newBuilder()
            .setPath(path)
            .setPartition(set.any.getPartition())
            .setRows(set.ids.getLongCardinality());
    long size = set.touches.stream().mapToLong(one -> one.getBytes(StandardCharsets.UTF_8).length).sum();
    if (size <= TOUCHES_BYTES_MAX) found.addAllTouches(set.touches);
    if (raw.length <= INLINE_BYTES_MAX) return found.setBitmap(ByteString.copyFrom(raw)).build();
    try {
      ParquetOut.writeFile(tableFolder + "/" + path, raw);
    } catch (IOException error) {
      throw new UncheckedIOException("a delete set can't be written: " + error.getMessage(), error);
    }
    return found
        .setBytes(raw.length)
        .setRowIdMin(set.ids.first())
        .setRowIdMax(set.ids.last())
        .addAllRanges(ranges(set.ids))
        .build();
  }

  private record Gap(long last, long next) {
    long width() {
      return next - last;
    }
  }

  /** Ranges that hold every id, cut where the gaps are widest. */
  static List<RowIdRange> ranges(Roaring64NavigableMap ids) {
    PriorityQueue<Gap> widest = new PriorityQueue<>((left, right) -> Long.compare(left.width(), right.width()));
    LongIterator all = ids.getLongIterator();
    long first = all.next();
    long last = first;
    while (all.hasNext()) {
      long next = all.next();
      if (next > last + 1) {
        widest.add(new Gap(last, next));
        if (widest.size() >= RANGES_MAX) widest.poll();
      }
      last = next;
    }
    List<Gap> cuts = new ArrayList<>(widest);
    Collections.sort(cuts, (left, right) -> Long.compare(left.last, right.last));
    List<RowIdRange> found = new ArrayList<>();
    for (Gap one : cuts) {
      found.add(RowIdRange.newBuilder().setFirst(first).setLast(one.last).build());
      first = one.next;
    }
    found.add(RowIdRange.newBuilder().setFirst(first).setLast(last).build());
    return found;
  }
}
