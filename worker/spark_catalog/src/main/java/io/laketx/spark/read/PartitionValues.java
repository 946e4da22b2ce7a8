package io.laketx.spark.read;

import io.laketx.v1.Value;
import java.math.BigDecimal;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.unsafe.types.UTF8String;

/** Values of the wire as Spark keeps them in rows, under a type that may be wider than the one they were given for. */
final class PartitionValues {
  private static final long MICROS_PER_DAY = 86_400_000_000L;

  private PartitionValues() {}

  static Object inRows(Value value, DataType type) {
    return switch (value.getKindCase()) {
      case BOOLEAN -> value.getBoolean();
      case INTEGER -> number(BigDecimal.valueOf(value.getInteger()), type);
      case REAL -> type instanceof FloatType ? (Object) (float) value.getReal() : (Object) value.getReal();
      case TEXT -> UTF8String.fromString(value.getText());
      case BINARY -> value.getBinary().toByteArray();
      case DECIMAL -> number(new BigDecimal(value.getDecimal()), type);
      case DATE -> type instanceof TimestampNTZType
          ? (Object) (value.getDate() * MICROS_PER_DAY)
          : (Object) value.getDate();
      case TIMESTAMP_US -> value.getTimestampUs();
      default -> null;
    };
  }

  private static Object number(BigDecimal value, DataType type) {
    if (type instanceof DecimalType decimal) {
      return Decimal.apply(value.setScale(decimal.scale()), decimal.precision(), decimal.scale());
    }
    if (type instanceof DoubleType) return value.doubleValue();
    if (type instanceof FloatType) return value.floatValue();
    if (type instanceof IntegerType) return value.intValueExact();
    if (type instanceof ShortType) return value.shortValueExact();
    if (type instanceof ByteType) return value.byteValueExact();
    return value.longValueExact();
  }
}
