package io.laketx.spark.read;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/** Units of work as Spark's tasks: large files are split, small ones read together, as Spark does with its own. */
public final class Tasks {
  private Tasks() {}

  public static LakePartition[] of(List<Unit> units) {
    long bytes = units.stream().mapToLong(Unit::bytes).sum();
    long files = units.stream().filter(one -> one.openCost(1) > 0).count();
    long each = SparkInternals.splitBytes(bytes, files);
    List<Unit> parts = new ArrayList<>();
    for (Unit one : units) {
      if (one instanceof FileTask file && !file.isInlined() && file.bytes() > each) split(file, each, parts);
      else parts.add(one);
    }
    parts.sort(Comparator.comparingLong(Unit::bytes).reversed());
    return packed(parts, each);
  }

  private static void split(FileTask file, long each, List<Unit> parts) {
    for (long from = 0; from < file.bytes(); from += each) {
      boolean isLast = from + each >= file.bytes();
      FileTask part = file.part(from, isLast ? FileTask.ALL - from : each);
      parts.add(part);
    }
  }

  private static LakePartition[] packed(List<Unit> parts, long each) {
    long openCost = SparkInternals.openCostBytes();
    List<LakePartition> found = new ArrayList<>();
    List<Unit> current = new ArrayList<>();
    long filled = 0;
    for (Unit one : parts) {
      if (!current.isEmpty() && filled + one.bytes() > each) {
        found.add(new LakePartition(List.copyOf(current)));
        current.clear();
        filled = 0;
      }
      current.add(one);
      filled += one.bytes() + one.openCost(openCost);
    }
    if (!current.isEmpty()) found.add(new LakePartition(List.copyOf(current)));
    return found.toArray(LakePartition[]::new);
  }
}
