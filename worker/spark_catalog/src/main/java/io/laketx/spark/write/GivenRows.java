package io.laketx.spark.write;

import io.laketx.v1.DataFile;
import io.laketx.v1.Limit;
import io.laketx.v1.Table;
import java.io.Closeable;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataType;

/**
 * Few rows of an INSERT that a statement brings with it, as VALUES does. Tasks hand them to the driver, which gives them to
 * MetaService with the commit: no file is written. What it doesn't take the driver puts into files.
 */
final class GivenRows {
  private static final String ROWS = "write.inline.rows";
  private static final String BYTES = "write.inline.bytes";
  private static final long FILE_BYTES_MAX = Limit.LIMIT_INLINE_FILE_BYTES_VALUE;
  private static final long COMMIT_BYTES_MAX = Limit.LIMIT_INLINE_COMMIT_BYTES_VALUE; // each part of it names all columns
  private static final Set<String> NOT_KEPT =
      Set.of("FEATURE_NOT_OFFERED", "FILE_KIND_INVALID", "INLINED_TOO_LARGE", "TOO_MANY_INLINED_ROWS");

  private GivenRows() {}

  /** Whether the statement that runs brings few rows, by the table's properties. */
  static boolean areFew(Table meta) {
    long most = property(meta, ROWS, Limit.LIMIT_INLINE_ROWS_VALUE);
    return most > 0 && SparkPlans.bringsRows(most, bytesMax(meta));
  }

  private static long bytesMax(Table meta) {
    return property(meta, BYTES, Limit.LIMIT_INLINE_BYTES_VALUE);
  }

  private static long property(Table meta, String name, long otherwise) {
    String said = meta.getPropertiesOrDefault(name, "");
    return said.isEmpty() ? otherwise : Long.parseLong(said);
  }

  /** Whether MetaService keeps rows, but not these: there are too many, or its store is of an earlier release. */
  static boolean areRefused(String reason) {
    return NOT_KEPT.contains(reason);
  }

  /** What the tasks handed over, as inlined files; null where these are too large. */
  static Arrived inlined(WriterCommitMessage[] messages, Staging staging) {
    Arrived found = written(messages, staging);
    long bytes = found.files().stream().mapToLong(DataFile::getBytes).sum();
    boolean isOneTooLarge = found.files().stream().anyMatch(file -> file.getBytes() > FILE_BYTES_MAX);
    return isOneTooLarge || bytes > COMMIT_BYTES_MAX ? null : found;
  }

  /** What the tasks handed over, put into files here, by the rules of all files. */
  static Arrived written(WriterCommitMessage[] messages, Staging staging) {
    List<InternalRow> rows = rows(messages, staging.types().length);
    RowFiles files = new RowFiles(staging, 0, 0, false);
    rows.sort(order(staging, files));
    try (Closeable left = files::drop) {
      for (InternalRow one : rows) {
        if (staging.isKeyed()) files.put(one);
        else files.append(one, null);
      }
      return Arrived.of(new WriterCommitMessage[] {Told.of(files.close(), files.refused())});
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static List<InternalRow> rows(WriterCommitMessage[] messages, int columns) {
    List<InternalRow> found = new ArrayList<>();
    for (WriterCommitMessage one : messages) {
      if (one == null) continue;
      for (byte[] bytes : ((Handed) one).rows()) {
        UnsafeRow row = new UnsafeRow(columns);
        row.pointTo(bytes, bytes.length);
        found.add(row);
      }
    }
    return found;
  }

  /** As Spark sorts them for tasks that write files. */
  private static Comparator<InternalRow> order(Staging staging, RowFiles files) {
    List<String> by = new ArrayList<>(staging.meta().getPartitionColumnsList());
    by.addAll(staging.meta().getPrimaryKeyList());
    Comparator<InternalRow> inPlace = SparkPlans.ordering(staging.ordinals(by), staging.types());
    if (!staging.orderBy().isEmpty()) {
      Comparator<InternalRow> ordered = SparkPlans.ordering(staging.ordinals(staging.orderBy()), staging.types());
      inPlace = inPlace.thenComparing(staging.isKeyed() ? ordered.reversed() : ordered);
    }
    return staging.isKeyed() ? Comparator.comparingInt(files::bucketOf).thenComparing(inPlace) : inPlace;
  }

  // -- in tasks

  private record Handed(byte[][] rows) implements WriterCommitMessage {}

  record Factory(DataType[] types) implements DataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
      return new Hands(types);
    }
  }

  private static final class Hands implements DataWriter<InternalRow> {
    private final UnsafeProjection projection;
    private final List<byte[]> rows = new ArrayList<>();

    Hands(DataType[] types) {
      projection = UnsafeProjection.create(types);
    }

    @Override
    public void write(InternalRow row) {
      rows.add(projection.apply(row).copy().getBytes());
    }

    @Override
    public WriterCommitMessage commit() {
      return new Handed(rows.toArray(byte[][]::new));
    }

    @Override
    public void abort() {}

    @Override
    public void close() {}
  }
}
