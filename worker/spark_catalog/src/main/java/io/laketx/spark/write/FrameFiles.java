package io.laketx.spark.write;

import com.google.protobuf.InvalidProtocolBufferException;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The rows of a DataFrame of Python's worker as files of a table. Each task writes to where its files stay, under names
 * of that attempt alone, and tells the driver of them when it is done: those of one attempt of each task count.
 */
public final class FrameFiles implements SupportsWrite, WriteBuilder, Write, BatchWrite {
  static final String PART = "_part"; // the last column, where rows say which folder they go to

  private final Table meta;
  private final String folder;
  private final StructType rows;
  private final List<String> written = new ArrayList<>();

  private FrameFiles(Table meta, String folder, StructType rows) {
    this.meta = meta;
    this.folder = folder;
    this.rows = rows;
  }

  /** The paths below the folder, a line each. Rows have the table's columns, and lie by folder, sorted by it. */
  public static String write(Dataset<Row> rows, byte[] definition, String folder) throws InvalidProtocolBufferException {
    FrameFiles files = new FrameFiles(Table.parseFrom(definition), folder, rows.schema());
    SparkPlans.append(rows, files);
    return String.join("\n", files.written);
  }

  @Override
  public String name() {
    return meta.getName();
  }

  @Override
  @SuppressWarnings("deprecation") // what Spark resolves comes from here
  public StructType schema() {
    return rows;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(TableCapability.BATCH_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return this;
  }

  @Override
  public Write build() {
    return this;
  }

  @Override
  public BatchWrite toBatch() {
    return this;
  }

  @Override
  public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
    List<StructField> given = new ArrayList<>(Arrays.asList(rows.fields()));
    boolean isParted = given.get(given.size() - 1).name().equals(PART);
    DataType part = isParted ? given.remove(given.size() - 1).dataType() : null;
    StructType columns = FileColumns.of(meta);
    if (given.size() > columns.size()) {
      String last = given.get(given.size() - 1).name();
      columns = columns.add(last.equals(FileColumns.OP.name()) ? FileColumns.OP : FileColumns.ROW_ID);
    }
    check(given, columns);
    long rowsMax = meta.getPrimaryKeyCount() == 0 ? SQLConf.get().maxRecordsPerFile() : 0; // a bucket's lie in one file
    return new Factory(ParquetOut.of(meta, columns), folder, columns, part, rowsMax);
  }

  private void check(List<StructField> given, StructType columns) {
    boolean isRight = given.size() == columns.size();
    for (int at = 0; isRight && at < given.size(); at++) {
      StructField wanted = columns.fields()[at];
      isRight = given.get(at).name().equals(wanted.name());
      isRight &= DataType.equalsIgnoreNullability(given.get(at).dataType(), wanted.dataType());
    }
    if (!isRight) throw new IllegalStateException(rows.sql() + " are not the columns of " + meta.getName());
  }

  @Override
  public void commit(WriterCommitMessage[] messages) {
    for (WriterCommitMessage one : messages) written.addAll(((Done) one).paths());
  }

  /** The transaction's folder is removed by who began it. */
  @Override
  public void abort(WriterCommitMessage[] messages) {}

  record Done(List<String> paths) implements WriterCommitMessage {}

  /** `part` is the type of what comes after the columns; null where all files lie in the folder itself. */
  record Factory(ParquetOut out, String folder, StructType columns, DataType part, long rowsMax)
      implements DataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
      return new FrameRows(this, String.format("part-%05d-%d-", partition, task));
    }
  }
}
