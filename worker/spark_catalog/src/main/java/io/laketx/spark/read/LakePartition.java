package io.laketx.spark.read;

import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/** What one task of Spark's reads. */
public record LakePartition(List<Unit> units) implements InputPartition {}
