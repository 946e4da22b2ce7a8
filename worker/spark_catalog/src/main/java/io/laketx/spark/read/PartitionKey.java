package io.laketx.spark.read;

import io.laketx.v1.Partition;
import io.laketx.v1.PartitionValue;
import io.laketx.v1.Value;
import java.math.BigDecimal;
import java.util.Map;
import java.util.TreeMap;

/** A partition as something that is equal and can be looked up. */
public final class PartitionKey {
  private PartitionKey() {}

  public static Map<String, Value> of(Partition partition) {
    Map<String, Value> found = new TreeMap<>();
    for (PartitionValue one : partition.getValuesList()) found.put(one.getColumn(), canonical(one.getValue()));
    return found;
  }

  /** Writers and the service write 1.5 or 1.50 for one number. */
  public static Value canonical(Value value) {
    if (value.getKindCase() != Value.KindCase.DECIMAL) return value;
    BigDecimal number = new BigDecimal(value.getDecimal()).stripTrailingZeros();
    return Value.newBuilder().setDecimal(number.toPlainString()).build();
  }
}
