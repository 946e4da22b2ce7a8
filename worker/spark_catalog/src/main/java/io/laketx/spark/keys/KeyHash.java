package io.laketx.spark.keys;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.XxHash64Function;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StringType;

/** The hash of a row's key, which gives the row its bucket: `pmod(xxhash64(key columns), buckets)`. */
public final class KeyHash {
  private static final long SPARK_SEED = 42;

  private KeyHash() {}

  public static long of(InternalRow row, int[] ordinals, DataType[] types) {
    long found = SPARK_SEED;
    for (int at = 0; at < ordinals.length; at++) {
      if (!row.isNullAt(ordinals[at])) {
        found = XxHash64Function.hash(row.get(ordinals[at], types[at]), types[at], found);
      }
    }
    return found;
  }

  /** Whether different keys always have different hashes: of one number of at most 64 bits each step can be undone. */
  public static boolean isExact(DataType[] types) {
    if (types.length > 1 || types[0] instanceof StringType || types[0] instanceof BinaryType) return false;
    return !(types[0] instanceof DecimalType kind) || kind.precision() <= Decimal.MAX_LONG_DIGITS();
  }

  public static int bucket(long hash, int buckets) {
    return (int) Math.floorMod(hash, (long) buckets);
  }
}
