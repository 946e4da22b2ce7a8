package io.laketx.spark.write;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** The rows of a MERGE that is an insert by key, for which the table isn't read: all of them are new to Spark. */
record UpsertedRows(Staging staging, KeyPlaces places, boolean isOneBucket) implements DeltaWriterFactory {
  @Override
  public DeltaWriter<InternalRow> createWriter(int partition, long task) {
    return new Rows(LakeWrite.writer(staging, places, partition, task, isOneBucket));
  }

  private record Rows(DataWriter<InternalRow> rows) implements DeltaWriter<InternalRow> {
    @Override
    public void insert(InternalRow row) throws IOException {
      rows.write(row);
    }

    @Override
    public void update(InternalRow metadata, InternalRow id, InternalRow row) {
      throw new IllegalStateException("no row of the table is read");
    }

    @Override
    public void delete(InternalRow metadata, InternalRow id) {
      throw new IllegalStateException("no row of the table is read");
    }

    @Override
    public WriterCommitMessage commit() throws IOException {
      return rows.commit();
    }

    @Override
    public void abort() throws IOException {
      rows.abort();
    }

    @Override
    public void close() throws IOException {
      rows.close();
    }
  }
}
