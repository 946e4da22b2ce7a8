package io.laketx.spark.changes;

import io.laketx.spark.read.PartitionKey;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Partition;
import io.laketx.v1.Value;
import java.util.Map;

/** Where all images of a row are: a partition, and in a primary-key table a bucket of it. */
record Bucket(Map<String, Value> partition, int number) {
  static Bucket of(LiveEntry one) {
    int number = one.hasFile() ? one.getFile().getBucket() : 0;
    return new Bucket(PartitionKey.of(partitionOf(one)), number);
  }

  static Partition partitionOf(LiveEntry one) {
    return one.hasFile() ? one.getFile().getPartition() : one.getDeleteSet().getPartition();
  }
}
