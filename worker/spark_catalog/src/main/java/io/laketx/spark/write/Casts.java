package io.laketx.spark.write;

import io.laketx.spark.service.LakeException;
import io.laketx.v1.Table;
import java.util.Locale;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * Casts that Spark puts between a statement's values and the table's columns. A key loses nothing in one, and under
 * `strict_casts`, an option of the write or a property of the table, no column does. What doesn't fit at all Spark refuses by itself.
 *
 * <p>Where the types say that a cast may lose something, the values are looked at: constants, and rows that are put in,
 * which are read once more for it. The types alone decide where that can't be done.
 */
public final class Casts {
  private static final int FLOAT_DIGITS = 6; // so many decimal digits survive
  private static final int DOUBLE_DIGITS = 15;

  private Casts() {}

  /** Looks at the statement that runs; `isInsert`: its rows come from elsewhere, and can be asked for again. */
  static void check(Table meta, WriteOptions options, boolean isInsert) {
    boolean areAllStrict = options.areCastsStrict(meta);
    if (!areAllStrict && meta.getPrimaryKeyCount() == 0) return;
    for (SparkPlans.Inserted one : SparkPlans.insertedCasts(isInsert)) {
      boolean isKey = meta.getPrimaryKeyList().stream().anyMatch(name -> isSame(name, one.column()));
      if (!(areAllStrict || isKey) || !mayLose(one.from(), one.to())) continue;
      String why = isKey ? "it is of the key" : "write.strict_casts is set";
      String column = one.column() + " of " + meta.getName();
      if (one.rows() == null || losesAlways(one.from(), one.to())) {
        throw LakeException.invalid(
            "CAST_LOSSY",
            "the values for " + column + " are " + one.from().simpleString() + " and would become "
                + one.to().simpleString() + ", which may lose something (" + why + "): cast them in the statement");
      }
      String lost = one.changed();
      if (lost != null) {
        throw LakeException.invalid(
            "CAST_LOSSY",
            lost + " (" + one.from().simpleString() + ") would change in a cast to " + one.to().simpleString()
                + ", the type of " + column + " (" + why + "): cast it in the statement");
      }
    }
  }

  /** A time of day is not asked whether it is midnight, nor bytes whether they are a text. */
  private static boolean losesAlways(DataType from, DataType to) {
    return to instanceof DateType || from instanceof BinaryType;
  }

  private static boolean isSame(String name, String other) {
    return name.toLowerCase(Locale.ROOT).equals(other.toLowerCase(Locale.ROOT));
  }

  /** Whether every value can be cast, and stays what it is. */
  public static boolean isSafe(DataType from, DataType to) {
    return from.equals(to) || (Cast$.MODULE$.canUpCast(from, to) && !mayLose(from, to));
  }

  /** Whether a cast that succeeds may give another value. */
  static boolean mayLose(DataType from, DataType to) {
    if (from instanceof NullType) return false;
    boolean isReal = from instanceof FloatType || from instanceof DoubleType;
    int scale = from instanceof DecimalType decimal ? decimal.scale() : 0;
    if (to instanceof IntegralType) return isReal || scale > 0;
    if (to instanceof DecimalType decimal) return isReal || scale > decimal.scale();
    if (to instanceof FloatType) return !(from instanceof FloatType) && digits(from) > FLOAT_DIGITS;
    if (to instanceof DoubleType) return !isReal && digits(from) > DOUBLE_DIGITS;
    if (to instanceof DateType) return from instanceof TimestampType || from instanceof TimestampNTZType;
    if (to instanceof StringType) return from instanceof BinaryType || from instanceof TimestampType;
    boolean isZone = from instanceof TimestampType && to instanceof TimestampNTZType; // an hour that comes twice
    return isZone || (from instanceof TimestampNTZType && to instanceof TimestampType); // or never
  }

  private static int digits(DataType type) {
    if (type instanceof DecimalType decimal) return decimal.precision();
    if (type instanceof ByteType || type instanceof ShortType) return FLOAT_DIGITS;
    return type instanceof IntegerType ? DOUBLE_DIGITS : Integer.MAX_VALUE;
  }
}
