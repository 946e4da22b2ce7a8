package io.laketx.spark.write;

import com.google.protobuf.InvalidProtocolBufferException;
import io.laketx.spark.read.LivePartitions;
import io.laketx.spark.read.PartitionKey;
import io.laketx.v1.Column;
import io.laketx.v1.Partition;
import io.laketx.v1.Table;
import io.laketx.v1.Value;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/** One task's share of a DELETE, UPDATE or MERGE. */
final class DeltaRows implements DeltaWriter<InternalRow> {
  private final Staging staging;
  private final RowFiles files;
  private final Table meta;
  private final DataType[] types;
  private final int origin;
  private final Map<String, byte[]> partitions;
  private final Map<UTF8String, Map<String, Value>> partitionOf = new HashMap<>();
  private final Map<UTF8String, Roaring64NavigableMap> hidden = new HashMap<>();
  private final int[] ofRowId;
  private final int keyCount;
  private final int[] parts;
  private final boolean byFile;
  private final Moves moves;
  private UTF8String lastFile;
  private InternalRow lastPlace;
  private Roaring64NavigableMap lastHidden;

  /**
   * `origin` is where the metadata has the row's file, or its partition where it may leave it (`mayMove`); `partitions` has
   * the partition of each file. `byFile`: rows come sorted by their files, which alone tell their partitions.
   */
  record Factory(
      Staging staging,
      boolean isOneBucket,
      int origin,
      boolean byFile,
      boolean mayMove,
      HashMap<String, byte[]> partitions)
      implements DeltaWriterFactory {
    @Override
    public DeltaWriter<InternalRow> createWriter(int partition, long task) {
      return new DeltaRows(this, new RowFiles(staging, partition, task, isOneBucket));
    }
  }

  private DeltaRows(Factory factory, RowFiles files) {
    staging = factory.staging;
    origin = factory.origin;
    byFile = factory.byFile;
    partitions = factory.partitions;
    this.files = files;
    meta = staging.meta();
    types = staging.types();
    parts = staging.ordinals(meta.getPartitionColumnsList());
    ofRowId = staging.isKeyed() ? staging.ordinals(RowChanges.ofRowId(meta)) : new int[0];
    keyCount = meta.getPrimaryKeyCount();
    moves = factory.mayMove ? new Moves(staging, files) : null;
  }

  @Override
  public void delete(InternalRow metadata, InternalRow id) throws IOException {
    if (!staging.isKeyed()) {
      hide(metadata, id);
      return;
    }
    GenericInternalRow tombstone = tombstone(id);
    if (moves != null) {
      boolean isInPlace = isIn(tombstone, partitionOf(metadata));
      setPartition(tombstone, partitionOf(metadata));
      if (isInPlace) moves.bury(tombstone);
      else moves.leave(tombstone);
      return;
    }
    if (byFile) place(tombstone, metadata);
    files.bury(tombstone);
  }

  private GenericInternalRow tombstone(InternalRow id) {
    GenericInternalRow found = new GenericInternalRow(types.length);
    for (int at = 0; at < ofRowId.length; at++) found.update(ofRowId[at], id.get(at, types[ofRowId[at]]));
    return found;
  }

  @Override
  public void update(InternalRow metadata, InternalRow id, InternalRow row) throws IOException {
    if (!staging.isKeyed()) {
      boolean leaves = parts.length > 0 && !partitionOfFile(metadata).equals(partitionOf(row, parts));
      hide(metadata, id);
      files.append(row, leaves ? null : Long.valueOf(id.getLong(0)));
      return;
    }
    for (int at = 0; at < keyCount; at++) {
      int column = ofRowId[at];
      if (!WireValues.same(id.get(at, types[column]), row.get(column, types[column]))) {
        files.refuse(RowChanges.KEY_SET, RowChanges.keySet(meta.getPrimaryKey(at)));
        return;
      }
    }
    InternalRow image = staging.sets() == null ? row : staging.sets().image(row, types);
    if (moves == null) {
      files.put(image, false);
    } else if (isIn(row, partitionOf(metadata))) {
      moves.put(image, false);
    } else {
      GenericInternalRow tombstone = tombstone(id);
      setPartition(tombstone, partitionOf(metadata));
      moves.leave(tombstone);
      moves.land(row);
    }
  }

  @Override
  public void insert(InternalRow row) throws IOException {
    if (moves != null) moves.put(row, true);
    else if (staging.isKeyed()) files.put(row);
    else files.append(row, null);
  }

  private InternalRow partitionOf(InternalRow metadata) {
    return metadata.getStruct(origin, parts.length);
  }

  private boolean isIn(InternalRow row, InternalRow partition) {
    for (int at = 0; at < parts.length; at++) {
      DataType type = types[parts[at]];
      if (!WireValues.same(row.get(parts[at], type), partition.get(at, type))) return false;
    }
    return true;
  }

  private void setPartition(GenericInternalRow row, InternalRow partition) {
    for (int at = 0; at < parts.length; at++) row.update(parts[at], partition.get(at, types[parts[at]]));
  }

  /** The rows of a file are sorted by key, those of two files are not. */
  private void place(GenericInternalRow row, InternalRow metadata) throws IOException {
    UTF8String file = metadata.getUTF8String(origin);
    if (!file.equals(lastFile)) {
      lastFile = file.copy();
      files.turn();
      lastPlace = LivePartitions.row(partition(file), LivePartitions.schema(meta));
    }
    setPartition(row, lastPlace);
  }

  private void hide(InternalRow metadata, InternalRow id) {
    UTF8String file = metadata.getUTF8String(origin);
    if (!file.equals(lastFile)) {
      lastFile = file.copy();
      lastHidden = hidden.computeIfAbsent(lastFile, none -> new Roaring64NavigableMap());
    }
    lastHidden.addLong(id.getLong(0));
  }

  private Map<String, Value> partitionOfFile(InternalRow metadata) {
    UTF8String file = metadata.getUTF8String(origin);
    Map<String, Value> known = partitionOf.get(file);
    if (known != null) return known;
    Map<String, Value> found = PartitionKey.of(partition(file));
    partitionOf.put(file.copy(), found);
    return found;
  }

  private Partition partition(UTF8String file) {
    try {
      return Partition.parseFrom(partitions.get(file.toString()));
    } catch (InvalidProtocolBufferException error) {
      throw new IllegalStateException(error);
    }
  }

  private Map<String, Value> partitionOf(InternalRow row, int[] ordinals) {
    Map<String, Value> found = new HashMap<>();
    for (int at : ordinals) {
      Column column = meta.getColumns(at);
      found.put(column.getName(), PartitionKey.canonical(WireValues.of(row.get(at, types[at]), column.getType())));
    }
    return found;
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    List<Moves.Landed> landed = moves == null || files.refused() != null ? List.of() : moves.close();
    List<Told.Written> written = files.close();
    Map<String, byte[]> ids = new HashMap<>();
    hidden.forEach((file, rows) -> ids.put(file.toString(), DeleteSets.bytes(rows)));
    return new Told(written, ids, landed, List.of(), files.refused());
  }

  @Override
  public void abort() throws IOException {
    files.drop();
  }

  @Override
  public void close() {}
}
