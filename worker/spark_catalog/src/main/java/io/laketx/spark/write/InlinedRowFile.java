package io.laketx.spark.write;

import com.google.protobuf.ByteString;
import io.laketx.v1.DataFile;
import io.laketx.v1.FileKind;
import io.laketx.v1.Table;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.channels.Channels;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.util.ArrowUtils;

/** A file that MetaService keeps: its rows go with the commit, as a stream of Arrow, and nothing is at its path. */
final class InlinedRowFile implements RowFile {
  private final BufferAllocator allocator = ArrowUtils.rootAllocator().newChildAllocator("laketx", 0, Long.MAX_VALUE);
  private final VectorSchemaRoot root;
  private final ArrowWriter rows;
  private final ValueBounds bounds;
  private final FileKind kind;

  InlinedRowFile(Table meta, FileKind kind, boolean setsColumns) {
    boolean isDelta = kind == FileKind.FILE_KIND_DELTA;
    this.kind = isDelta ? FileKind.FILE_KIND_INLINED_DELTA : FileKind.FILE_KIND_INLINED;
    root = VectorSchemaRoot.create(ArrowColumns.of(meta, isDelta, setsColumns), allocator);
    rows = ArrowWriter.create(root);
    bounds = new ValueBounds(meta);
  }

  @Override
  public void write(InternalRow row) {
    rows.write(row);
    bounds.add(row);
  }

  @Override
  public void finish(DataFile.Builder entry) throws IOException {
    rows.finish();
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ArrowStreamWriter stream = new ArrowStreamWriter(root, null, Channels.newChannel(bytes))) {
      stream.start();
      stream.writeBatch();
      stream.end();
    } finally {
      drop();
    }
    entry.setKind(kind).setContent(ByteString.copyFrom(bytes.toByteArray())).setBytes(bytes.size());
    bounds.tell(entry);
  }

  @Override
  public void drop() {
    root.close();
    allocator.close();
  }
}
