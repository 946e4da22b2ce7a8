package io.laketx.spark.write;

import io.laketx.spark.write.SparkPlans.Updated;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a MERGE sets of the rows that it updates, for a table whose images may set single columns.
 *
 * @param isUpsert whether it sets the same of a row that is there and of a new one, by the key alone: what the table has
 *     doesn't matter
 */
record MergedColumns(Updated updated, boolean isUpsert) {

  /** Null where images of rows that are there are whole: their key is set, or it can't be seen. */
  static MergedColumns of(Table meta) {
    MergeRows merge = SparkPlans.merge();
    if (merge == null || !(merge.child() instanceof Join join)) return null;
    if (merge.containsPattern(TreePattern.PLAN_EXPRESSION())) return null; // Spark itself puts one around the MERGE
    List<MergeRows.Instruction> ofRowsThere = new ArrayList<>(CollectionConverters.asJava(merge.matchedInstructions()));
    ofRowsThere.addAll(CollectionConverters.asJava(merge.notMatchedBySourceInstructions()));
    Map<String, Expression> keys = join.condition().isEmpty() ? null : SparkPlans.keySources(join, meta);
    Set<String> set = new HashSet<>();
    List<Expression> uses = new ArrayList<>();
    join.condition().foreach(uses::add);
    for (MergeRows.Instruction one : ofRowsThere) {
      uses.add(one.condition());
      if (!(one instanceof MergeRows.Keep keep)) return null;
      if (keep.context() == MergeRows.Delete$.MODULE$) continue;
      List<Expression> values = written(keep, meta);
      if (values == null) return null;
      for (int at = 0; at < values.size(); at++) {
        String column = meta.getColumns(at).getName();
        Expression value = SparkPlans.bare(values.get(at));
        boolean isKept = SparkPlans.isOf(join.left(), value) && SparkPlans.nameOf(value).equals(column);
        if (isKept || isKey(keys, column, value)) continue;
        if (meta.getPrimaryKeyList().contains(column)) return null;
        set.add(column);
        uses.add(value);
      }
    }
    return new MergedColumns(new Updated(set, usedOf(join, uses)), keys != null && isUpsert(merge, join, keys, set, meta));
  }

  /** Whether a new row gets these columns as a row that is there does, and constants otherwise; by the whole key alone. */
  private static boolean isUpsert(
      MergeRows merge, Join join, Map<String, Expression> keys, Set<String> set, Table meta) {
    boolean isPlain = merge.notMatchedBySourceInstructions().isEmpty() && SparkPlans.isWhole(join.left());
    List<Expression> matched = isPlain ? written(only(merge.matchedInstructions()), meta) : null;
    List<Expression> added = isPlain ? written(only(merge.notMatchedInstructions()), meta) : null;
    if (matched == null || added == null || !meta.getPrimaryKeyList().containsAll(meta.getPartitionColumnsList())) return false;
    for (int at = 0; at < added.size(); at++) {
      String column = meta.getColumns(at).getName();
      Expression value = SparkPlans.bare(added.get(at));
      boolean isSame;
      if (keys.containsKey(column)) isSame = isKey(keys, column, value);
      else if (set.contains(column)) isSame = value.deterministic() && value.semanticEquals(SparkPlans.bare(matched.get(at)));
      else isSame = value.foldable();
      if (!isSame) return false;
    }
    return true;
  }

  /** Whether it is what the key's column is compared with; `keys`: see {@link SparkPlans#keySources}. */
  private static boolean isKey(Map<String, Expression> keys, String column, Expression value) {
    return keys != null && keys.containsKey(column) && value.semanticEquals(keys.get(column));
  }

  /** Null where there are several, or it has a condition or changes no row. */
  private static MergeRows.Keep only(Seq<MergeRows.Instruction> instructions) {
    boolean isOne = instructions.size() == 1 && instructions.head() instanceof MergeRows.Keep;
    MergeRows.Keep keep = isOne ? (MergeRows.Keep) instructions.head() : null;
    if (keep == null || keep.context() == MergeRows.Delete$.MODULE$) return null;
    return keep.condition().equals(Literal$.MODULE$.TrueLiteral()) ? keep : null;
  }

  /** What is written into the table's columns, after what is done with the row; null where that isn't there. */
  private static List<Expression> written(MergeRows.Keep keep, Table meta) {
    if (keep == null) return null;
    List<Expression> output = CollectionConverters.asJava(keep.output());
    int count = meta.getColumnsCount();
    return output.size() <= count ? null : output.subList(1, 1 + count);
  }

  /** The columns of the table that these use. */
  private static Set<String> usedOf(Join join, List<Expression> uses) {
    Set<String> found = new HashSet<>();
    for (Expression one : uses) {
      for (Expression leaf : CollectionConverters.asJava(one.collectLeaves())) {
        if (leaf instanceof Attribute column && SparkPlans.isOf(join.left(), column)) found.add(column.name());
      }
    }
    return found;
  }
}
