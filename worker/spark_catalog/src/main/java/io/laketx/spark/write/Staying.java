package io.laketx.spark.write;

import io.laketx.spark.read.MetadataColumns;
import io.laketx.v1.Table;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * `laketx_stays(partition, column …)`: whether a row's partition columns name the partition that it lies in. A new row
 * lies in none yet, and stays. Spark sorts by it the rows that a statement changes.
 */
public final class Staying {
  private static final String NAME = "laketx_stays";

  private Staying() {}

  static Transform of(Table meta) {
    Expression[] columns = new Expression[1 + meta.getPartitionColumnsCount()];
    columns[0] = Names.column(MetadataColumns.PARTITION);
    for (int at = 1; at < columns.length; at++) columns[at] = Names.column(meta.getPartitionColumns(at - 1));
    return Expressions.apply(NAME, columns);
  }

  /** Null where it is called otherwise. */
  public static UnboundFunction function(String name) {
    return name.equals(NAME) ? new Unbound() : null;
  }

  private record Unbound() implements UnboundFunction {
    @Override
    public BoundFunction bind(StructType input) {
      return new Bound(input);
    }

    @Override
    public String description() {
      return NAME + ": whether a row is in the partition that its columns name";
    }

    @Override
    public String name() {
      return NAME;
    }
  }

  private static final class Bound implements ScalarFunction<Boolean> {
    private static final long serialVersionUID = 1;

    private final DataType[] types;

    Bound(StructType input) {
      types = Arrays.stream(input.fields()).map(StructField::dataType).toArray(DataType[]::new);
    }

    @Override
    public DataType[] inputTypes() {
      return types;
    }

    @Override
    public DataType resultType() {
      return DataTypes.BooleanType;
    }

    @Override
    public boolean isResultNullable() {
      return false;
    }

    @Override
    public String name() {
      return NAME;
    }

    @Override
    public String canonicalName() {
      return "io.laketx." + NAME + Arrays.toString(types);
    }

    @Override
    public Boolean produceResult(InternalRow given) {
      if (given.isNullAt(0)) return true;
      InternalRow partition = given.getStruct(0, types.length - 1);
      for (int at = 1; at < types.length; at++) {
        if (!WireValues.same(partition.get(at - 1, types[at]), given.get(at, types[at]))) return false;
      }
      return true;
    }
  }
}
