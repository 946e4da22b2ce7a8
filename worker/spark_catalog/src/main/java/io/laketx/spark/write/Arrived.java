package io.laketx.spark.write;

import com.google.protobuf.InvalidProtocolBufferException;
import io.laketx.spark.read.PartitionKey;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.DataFile;
import io.laketx.v1.KeySet;
import io.laketx.v1.Limit;
import io.laketx.v1.Partition;
import io.laketx.v1.Scope;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/** What all tasks of a write told the driver. One that a task refused is refused here. */
record Arrived(
    List<DataFile> files,
    List<long[]> hashes,
    Map<String, Roaring64NavigableMap> hidden,
    List<Moves.Landed> landed,
    List<Told.Elsewhere> elsewhere) {
  private static final long KEYS_MAX = Limit.LIMIT_KEYS_NAMED_VALUE; // more are judged by bucket

  static Arrived of(WriterCommitMessage[] messages) {
    Arrived found =
        new Arrived(new ArrayList<>(), new ArrayList<>(), new LinkedHashMap<>(), new ArrayList<>(), new ArrayList<>());
    for (WriterCommitMessage one : messages) {
      Told told = (Told) one;
      if (told == null) continue;
      if (told.refused() != null) throw LakeException.invalid(told.refused().reason(), told.refused().message());
      for (Told.Written file : told.files()) found.add(file);
      found.landed.addAll(told.landed());
      found.elsewhere.addAll(told.elsewhere());
      told.hidden().forEach(
          (path, ids) -> found.hidden.computeIfAbsent(path, none -> new Roaring64NavigableMap()).or(DeleteSets.read(ids)));
    }
    return found;
  }

  /** Refuses an overwrite of partitions that would write a key which lives in a partition that it leaves as it is. */
  void checkOverwrite(Table meta, Scope scope) {
    Set<Object> covered = new HashSet<>();
    for (Partition one : scope.getNamed().getPartitionsList()) covered.add(PartitionKey.of(one));
    if (scope.getWritten()) for (DataFile one : files) covered.add(PartitionKey.of(one.getPartition()));
    for (Told.Elsewhere one : elsewhere) {
      if (covered.contains(PartitionKey.of(partition(one)))) continue;
      throw LakeException.invalid(
          "KEY_EXISTS",
          "the overwrite would write a key of " + meta.getName() + " that lives in another partition, " + one.row()
              + ", which it leaves as it is: overwrite that partition, too, or INSERT the row");
    }
  }

  private static Partition partition(Told.Elsewhere one) {
    try {
      return Partition.parseFrom(one.partition());
    } catch (InvalidProtocolBufferException error) {
      throw new IllegalStateException(error);
    }
  }

  private void add(Told.Written file) {
    try {
      files.add(DataFile.parseFrom(file.file()));
      hashes.add(file.hashes());
    } catch (InvalidProtocolBufferException error) {
      throw new IllegalStateException(error);
    }
  }

  /** The keys written to each bucket, where the service judges by rows and they are few; else none. */
  List<KeySet> keySets(Table meta) {
    if (!meta.getRules().getWantsKeys() || files.stream().mapToLong(DataFile::getRows).sum() > KEYS_MAX) return List.of();
    Map<Object, KeySet.Builder> found = new HashMap<>();
    for (int at = 0; at < files.size(); at++) {
      if (hashes.get(at).length != files.get(at).getRows()) return List.of();
      DataFile file = files.get(at);
      Object place = List.of(PartitionKey.of(file.getPartition()), file.getBucket());
      KeySet.Builder set =
          found.computeIfAbsent(
              place, none -> KeySet.newBuilder().setPartition(file.getPartition()).setBucket(file.getBucket()));
      for (long one : hashes.get(at)) set.addHashes(one);
    }
    return found.values().stream().map(KeySet.Builder::build).toList();
  }
}
