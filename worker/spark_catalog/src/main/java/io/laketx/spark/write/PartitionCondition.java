package io.laketx.spark.write;

import io.laketx.spark.WireTypes;
import io.laketx.spark.read.Conditions;
import io.laketx.spark.read.LivePartitions;
import io.laketx.spark.read.PartitionKey;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.TableRead;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Change;
import io.laketx.v1.Column;
import io.laketx.v1.DataFile;
import io.laketx.v1.Limit;
import io.laketx.v1.Partition;
import io.laketx.v1.PartitionList;
import io.laketx.v1.PartitionValue;
import io.laketx.v1.Read;
import io.laketx.v1.Scope;
import io.laketx.v1.Table;
import io.laketx.v1.Value;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.And;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.StructType;

/**
 * A condition on partition columns alone: it holds for all rows of a partition, or for none. By `=` and IN on every one
 * of the columns it names partitions, whether they are there or not; otherwise it means those that are there.
 */
public final class PartitionCondition {
  private static final int NAMED_MAX = Limit.LIMIT_PARTITIONS_NAMED_VALUE;
  private static final Set<String> KNOWN =
      Set.of(
          "=", "<=>", "<>", "<", "<=", ">", ">=", "IN", "IS_NULL", "IS_NOT_NULL", "STARTS_WITH", "AND", "OR", "NOT",
          "ALWAYS_TRUE", "ALWAYS_FALSE");

  private final Predicate[] predicates;
  private final Table meta;
  private final List<Partition> named;
  private SparkPlans.Test test;

  private PartitionCondition(Predicate[] predicates, Table meta) {
    this.predicates = predicates;
    this.meta = meta;
    named = named();
  }

  /** Null where it asks for more than partitions, or in a way that is not known. */
  public static PartitionCondition of(Predicate[] predicates, Table meta) {
    Set<String> columns = Set.copyOf(meta.getPartitionColumnsList());
    for (Predicate one : predicates) {
      if (!isOf(one, columns)) return null;
    }
    return new PartitionCondition(predicates, meta);
  }

  static LakeException refused(Predicate[] predicates, Table meta) {
    String columns = String.join(", ", meta.getPartitionColumnsList());
    String which = columns.isEmpty() ? meta.getName() + " has no partitions" : "its partitions are by " + columns;
    return LakeException.invalid(
        "PARTITION_INVALID",
        "whole partitions are overwritten, and " + which + ": " + Arrays.toString(predicates)
            + " asks for something else; use DELETE and INSERT, or MERGE");
  }

  private static boolean isOf(Expression one, Set<String> columns) {
    if (one instanceof Literal<?>) return true;
    if (one instanceof NamedReference column) {
      return column.fieldNames().length == 1 && columns.contains(column.fieldNames()[0]);
    }
    boolean isKnown = one instanceof Predicate predicate && KNOWN.contains(predicate.name());
    return isKnown && Arrays.stream(one.children()).allMatch(child -> isOf(child, columns));
  }

  boolean isEverything() {
    return Arrays.stream(predicates).allMatch(one -> one.name().equals("ALWAYS_TRUE"));
  }

  boolean holds(Partition partition) {
    if (test == null) test = SparkPlans.test(predicates, columns());
    return test.holds(LivePartitions.row(partition, columns()));
  }

  /** The partitions that it means. */
  List<Partition> partitions(Snapshot snapshot) {
    if (named != null) return named;
    List<Partition> found = new ArrayList<>();
    for (Partition one : LivePartitions.of(snapshot, onWire())) {
      if (holds(one)) found.add(one);
    }
    return found;
  }

  /** What an overwrite with these files covers. */
  void declare(Change.Builder change, Snapshot snapshot, List<DataFile> files) {
    Map<Map<String, Value>, Partition> covered = new LinkedHashMap<>();
    for (Partition one : partitions(snapshot)) covered.put(PartitionKey.of(one), one);
    for (DataFile one : files) {
      Partition partition = one.getPartition();
      if (!covered.containsKey(PartitionKey.of(partition)) && !holds(partition)) {
        throw LakeException.invalid(
            "ROW_OUTSIDE_PARTITION", "there are rows of other partitions than those that are overwritten");
      }
      covered.put(PartitionKey.of(partition), partition);
    }
    declare(change, covered.values());
  }

  void declare(Change.Builder change, Iterable<Partition> covered) {
    PartitionList.Builder list = PartitionList.newBuilder().addAllPartitions(covered);
    boolean isNone = list.getPartitionsCount() == 0;
    change.setScope(isNone ? Scope.newBuilder().setWritten(true) : Scope.newBuilder().setNamed(list));
  }

  /** What it reads of the table, to know which partitions it means; nothing where it names them. */
  List<Read> reads() {
    if (named != null) return List.of();
    io.laketx.v1.Predicate condition = onWire();
    if (condition == null) return List.of(TableRead.ofAll(true));
    return List.of(Read.newBuilder().setPredicate(condition).setChangesAll(true).build());
  }

  private io.laketx.v1.Predicate onWire() {
    return Conditions.of(SparkPlans.filters(predicates), meta);
  }

  private StructType columns() {
    return LivePartitions.schema(meta);
  }

  // -- partitions by name

  private List<Partition> named() {
    Map<String, Set<Value>> values = new LinkedHashMap<>();
    for (Predicate one : predicates) {
      if (!addValues(one, values)) return null;
    }
    List<Partition> found = List.of(Partition.getDefaultInstance());
    for (String name : meta.getPartitionColumnsList()) {
      Set<Value> its = values.get(name);
      if (its == null || (long) found.size() * its.size() > NAMED_MAX) return null;
      List<Partition> more = new ArrayList<>();
      for (Partition left : found) {
        for (Value value : its) {
          more.add(left.toBuilder().addValues(PartitionValue.newBuilder().setColumn(name).setValue(value)).build());
        }
      }
      found = more;
    }
    return found;
  }

  /** False where it says anything but values of a column. */
  private boolean addValues(Predicate predicate, Map<String, Set<Value>> values) {
    if (predicate instanceof And both) return addValues(both.left(), values) && addValues(both.right(), values);
    if (predicate.name().equals("ALWAYS_TRUE")) return true;
    Expression[] parts = predicate.children();
    if (parts.length == 0 || !(parts[0] instanceof NamedReference column)) return false;
    Column known = WireValues.column(meta, column.fieldNames()[0]);
    Set<Value> its = new LinkedHashSet<>();
    switch (predicate.name()) {
      case "IS_NULL" -> its.add(WireValues.of(null, known.getType()));
      case "IS_NOT_NULL" -> {
        return values.containsKey(known.getName()) || hasValues(known.getName());
      }
      case "=", "<=>", "IN" -> {
        for (int at = 1; at < parts.length; at++) {
          if (!(parts[at] instanceof Literal<?> one)) return false;
          if (!one.dataType().sameType(WireTypes.typeOf(known.getType()))) return false;
          boolean isNull = one.value() == null;
          if (!isNull || predicate.name().equals("<=>")) its.add(WireValues.of(one.value(), known.getType()));
        }
      }
      default -> {
        return false;
      }
    }
    Set<Value> before = values.get(known.getName());
    if (before != null) its.retainAll(before);
    values.put(known.getName(), its);
    return true;
  }

  /** Spark adds IS NOT NULL to what compares a column: it says nothing of its own then. */
  private boolean hasValues(String column) {
    return Arrays.stream(predicates)
        .filter(one -> one.name().equals("=") || one.name().equals("IN"))
        .flatMap(one -> Arrays.stream(one.references()))
        .anyMatch(one -> one.fieldNames()[0].equals(column));
  }

  @Override
  public String toString() {
    return Arrays.stream(predicates).map(Predicate::toString).collect(Collectors.joining(" AND "));
  }
}
