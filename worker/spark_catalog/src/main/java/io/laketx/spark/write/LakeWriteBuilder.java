package io.laketx.spark.write;

import io.laketx.spark.WireTypes;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.LakeException;
import io.laketx.v1.Column;
import io.laketx.v1.Operation;
import io.laketx.v1.Partition;
import io.laketx.v1.PartitionList;
import io.laketx.v1.PartitionValue;
import io.laketx.v1.Scope;
import io.laketx.v1.Table;
import io.laketx.v1.Value;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.And;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/** INSERT INTO and INSERT OVERWRITE: of the whole table, of one partition, or of those that the rows belong to. */
public class LakeWriteBuilder implements SupportsOverwriteV2, SupportsDynamicOverwrite {
  private final Snapshot snapshot;
  private final LogicalWriteInfo info;
  private Scope scope;

  private LakeWriteBuilder(Snapshot snapshot, LogicalWriteInfo info) {
    this.snapshot = snapshot;
    this.info = info;
  }

  public static LakeWriteBuilder of(Snapshot snapshot, LogicalWriteInfo info) {
    return snapshot.isKeyed() ? new OfKeyed(snapshot, info) : new LakeWriteBuilder(snapshot, info);
  }

  /** A table with a key takes streams in update mode: what is put in takes the place of older images. */
  private static final class OfKeyed extends LakeWriteBuilder implements SupportsStreamingUpdateAsAppend {
    OfKeyed(Snapshot snapshot, LogicalWriteInfo info) {
      super(snapshot, info);
    }
  }

  @Override
  public WriteBuilder truncate() {
    scope = Scope.newBuilder().setAll(true).build();
    return this;
  }

  @Override
  public WriteBuilder overwriteDynamicPartitions() {
    if (snapshot.meta().getPartitionColumnsCount() == 0) return truncate();
    scope = Scope.newBuilder().setWritten(true).build();
    return this;
  }

  @Override
  public WriteBuilder overwrite(Predicate[] predicates) {
    Map<String, Value> values = new HashMap<>();
    for (Predicate one : predicates) addValues(one, values);
    if (values.isEmpty()) return truncate();
    Table meta = snapshot.meta();
    Partition.Builder partition = Partition.newBuilder();
    for (String name : meta.getPartitionColumnsList()) {
      if (!values.containsKey(name)) {
        throw notOnePartition("it says nothing of " + name);
      }
      partition.addValues(PartitionValue.newBuilder().setColumn(name).setValue(values.get(name)));
    }
    scope = Scope.newBuilder().setNamed(PartitionList.newBuilder().addPartitions(partition)).build();
    return this;
  }

  private void addValues(Predicate predicate, Map<String, Value> values) {
    if (predicate instanceof And both) {
      addValues(both.left(), values);
      addValues(both.right(), values);
      return;
    }
    Expression[] sides = predicate.children();
    switch (predicate.name()) {
      case "ALWAYS_TRUE" -> {}
      case "IS_NULL" -> addValue(sides[0], null, true, values);
      case "=" -> addValue(sides[0], sides[1], false, values);
      case "<=>" -> addValue(sides[0], sides[1], true, values);
      default -> throw notOnePartition("it has " + predicate);
    }
  }

  /** `literal` is null for NULL. */
  private void addValue(Expression column, Expression literal, boolean takesNull, Map<String, Value> values) {
    boolean isColumn = column instanceof NamedReference named && named.fieldNames().length == 1;
    String name = isColumn ? ((NamedReference) column).fieldNames()[0] : "";
    Table meta = snapshot.meta();
    if (!meta.getPartitionColumnsList().contains(name)) {
      throw notOnePartition(column.describe() + " is no partition column");
    }
    Column known = WireValues.column(meta, name);
    Object value = null;
    if (literal != null) {
      boolean fits = literal instanceof Literal<?> one
          && (one.value() == null || one.dataType().sameType(WireTypes.typeOf(known.getType())));
      if (!fits) throw notOnePartition(name + " is " + known.getType() + ", the value is " + literal.describe());
      value = ((Literal<?>) literal).value();
    }
    if (value == null && !takesNull) throw notOnePartition("nothing equals NULL");
    Value found = WireValues.of(value, known.getType());
    Value before = values.put(name, found);
    if (before != null && !before.equals(found)) throw notOnePartition(name + " has two values");
  }

  private LakeException notOnePartition(String why) {
    return LakeException.invalid(
        "PARTITION_INVALID",
        "what is overwritten is the whole table, the partitions of the rows (dynamic), or one partition, named by "
            + "the values of all of its columns; " + why + ". Table.overwrite in Python takes a list of partitions");
  }

  @Override
  public Write build() {
    return new LakeWrite(snapshot, scope == null ? Operation.OPERATION_INSERT : Operation.OPERATION_OVERWRITE, scope, info);
  }
}
