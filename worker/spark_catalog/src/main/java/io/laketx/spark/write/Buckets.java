package io.laketx.spark.write;

import io.laketx.spark.keys.KeyHash;
import io.laketx.v1.Limit;
import io.laketx.v1.Table;
import java.util.Arrays;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/**
 * A row's bucket follows from the hash of its key. Spark learns of it as functions of the catalog, by which it spreads and
 * sorts rows that are written.
 *
 * <p>`laketx_bucket_16(key …)` is the bucket; `laketx_task_16_8(key …)` is a number that Spark's shuffle to 8 tasks sends
 * to the task of the bucket's number, so that no task gets two buckets where there are tasks enough.
 */
public final class Buckets {
  private static final Pattern NAME = Pattern.compile("laketx_(bucket|task)_([0-9]{1,9})(?:_([0-9]{1,9}))?");
  private static final int SHUFFLE_SEED = 42; // of Spark
  private static final int TASKS_LEAST = Limit.LIMIT_BUCKETS_A_TASK_VALUE; // so many buckets are a task each, whatever the session shuffles to

  private Buckets() {}

  /** How many tasks write the buckets of a table. */
  static int tasks(Table meta) {
    int shuffle = SQLConf.get().numShufflePartitions();
    return meta.getBuckets() <= Math.max(TASKS_LEAST, shuffle) ? meta.getBuckets() : shuffle;
  }

  static Transform bucketOf(Table meta) {
    return Expressions.apply("laketx_bucket_" + meta.getBuckets(), keys(meta));
  }

  static Transform taskOf(Table meta) {
    return Expressions.apply("laketx_task_" + meta.getBuckets() + "_" + tasks(meta), keys(meta));
  }

  private static Expression[] keys(Table meta) {
    return meta.getPrimaryKeyList().stream().map(Names::column).toArray(Expression[]::new);
  }

  /** The catalog's function of that name; null where it is none of these. */
  public static UnboundFunction function(String name) {
    Matcher found = NAME.matcher(name);
    if (!found.matches()) return null;
    int buckets = Integer.parseInt(found.group(2));
    boolean isTask = found.group(1).equals("task");
    if (buckets == 0 || isTask != (found.group(3) != null)) return null;
    return new Unbound(name, buckets, isTask ? Math.max(1, Integer.parseInt(found.group(3))) : 0);
  }

  private record Unbound(String name, int buckets, int tasks) implements UnboundFunction {
    @Override
    public BoundFunction bind(StructType input) {
      return new Bound(name, buckets, tasks, input);
    }

    @Override
    public String description() {
      return name + ": where a row with this key is written";
    }
  }

  private static final class Bound implements ScalarFunction<Integer> {
    private static final long serialVersionUID = 1;

    private final String name;
    private final int buckets;
    private final DataType[] types;
    private final int[] ordinals;
    private final int[] sentTo; // by task; null: the bucket itself is asked for

    Bound(String name, int buckets, int tasks, StructType input) {
      this.name = name;
      this.buckets = buckets;
      types = Arrays.stream(input.fields()).map(StructField::dataType).toArray(DataType[]::new);
      ordinals = new int[types.length];
      Arrays.setAll(ordinals, at -> at);
      sentTo = tasks == 0 ? null : numbersFor(tasks);
    }

    /** For each task the first number that Spark's hash sends to it. */
    private static int[] numbersFor(int tasks) {
      int[] found = new int[tasks];
      boolean[] isFound = new boolean[tasks];
      for (int number = 0, left = tasks; left > 0; number++) {
        int task = Math.floorMod(Murmur3_x86_32.hashInt(number, SHUFFLE_SEED), tasks);
        if (isFound[task]) continue;
        isFound[task] = true;
        found[task] = number;
        left--;
      }
      return found;
    }

    @Override
    public DataType[] inputTypes() {
      return types;
    }

    @Override
    public DataType resultType() {
      return DataTypes.IntegerType;
    }

    @Override
    public boolean isResultNullable() {
      return false;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public String canonicalName() {
      return "io.laketx." + name + Arrays.toString(types);
    }

    @Override
    public Integer produceResult(InternalRow key) {
      int bucket = KeyHash.bucket(KeyHash.of(key, ordinals, types), buckets);
      return sentTo == null ? bucket : sentTo[bucket % sentTo.length];
    }
  }
}
