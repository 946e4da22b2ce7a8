package io.laketx.spark.write;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Alias$;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.CheckOverflowInTableInsert;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InterpretedOrdering;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.SortOrder$;
import org.apache.spark.sql.catalyst.expressions.V2ExpressionUtils$;
import org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.internal.connector.PredicateUtils$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * All that is used of Spark's plans and expressions beyond its public interfaces. What a new minor version of Spark
 * changes is mended here.
 */
final class SparkPlans {
  private static final String VALUE = "_laketx_value";

  private SparkPlans() {}

  // -- conditions

  /** Whether a row, of the columns that it was made for, meets a condition. */
  interface Test {
    boolean holds(InternalRow row);
  }

  /** All of the predicates, whose references are columns of the schema. */
  static Test test(Predicate[] predicates, StructType columns) {
    LogicalPlan rows = LocalRelation$.MODULE$.apply(columns);
    List<BasePredicate> tests = new ArrayList<>();
    for (Predicate one : predicates) {
      Filter named = new Filter(V2ExpressionUtils$.MODULE$.toCatalyst(one).get(), rows);
      Filter found = (Filter) ParquetOut.session().sessionState().analyzer().execute(named);
      tests.add(Predicate$.MODULE$.create(found.condition(), rows.output()));
    }
    return row -> tests.stream().allMatch(each -> each.eval(row));
  }

  /** The same as filters; what has no filter is left out. */
  static org.apache.spark.sql.sources.Filter[] filters(Predicate[] predicates) {
    return PredicateUtils$.MODULE$.toV1(predicates);
  }

  // -- rows

  /** Rows by some of their columns, as Spark sorts them. */
  static Comparator<InternalRow> ordering(int[] ordinals, DataType[] types) {
    List<SortOrder> by = new ArrayList<>();
    for (int at : ordinals) {
      Expression column = new BoundReference(at, types[at], true);
      by.add(SortOrder$.MODULE$.apply(column, Ascending$.MODULE$, seq(List.of())));
    }
    return new InterpretedOrdering(seq(by));
  }

  // -- the statement that runs

  /** Whether it has a subquery, or can't be seen. */
  static boolean mayHaveSubquery() {
    QueryExecution execution = execution();
    return execution == null || execution.logical().containsPattern(TreePattern.PLAN_EXPRESSION());
  }

  /** Null where it can't be seen. */
  private static QueryExecution execution() {
    String id = ParquetOut.session().sparkContext().getLocalProperty("spark.sql.execution.id");
    return id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
  }

  /** A cast that Spark added, of values for a column, and where they come from; null where that can't be asked again. */
  record Inserted(String column, DataType from, DataType to, Expression value, LogicalPlan rows) {
    /** A value that is another one after the cast, as text; null: none is, or nobody knows. */
    String changed() {
      Alias named =
          Alias$.MODULE$.apply(
              value, VALUE, NamedExpression$.MODULE$.newExprId(), seq(List.of()), Option.empty(), seq(List.of()));
      Dataset<Row> values = Dataset$.MODULE$.ofRows(ParquetOut.session(), new Project(seq(List.of(named)), rows));
      String there = "try_cast(" + VALUE + " AS " + to.sql() + ")";
      List<Row> lost =
          values
              .where("NOT (try_cast(" + there + " AS " + from.sql() + ") <=> " + VALUE + ")")
              .selectExpr("CAST(" + VALUE + " AS STRING)")
              .limit(1)
              .collectAsList();
      return lost.isEmpty() ? null : lost.get(0).getString(0);
    }
  }

  /** `again`: whether the rows that come in can be asked for a second time. */
  static List<Inserted> insertedCasts(boolean again) {
    List<Inserted> found = new ArrayList<>();
    QueryExecution execution = execution();
    if (execution != null) addCasts(execution.analyzed(), again, found);
    return found;
  }

  private static void addCasts(LogicalPlan plan, boolean again, List<Inserted> found) {
    boolean isSource = again && plan instanceof Project project && project.child().deterministic();
    for (Expression one : CollectionConverters.asJava(plan.expressions())) {
      addAliases(one, isSource ? ((Project) plan).child() : null, found);
    }
    if (plan instanceof MergeRows merge) {
      List<Attribute> names = CollectionConverters.asJava(merge.output());
      addMerged(merge.matchedInstructions(), names, found);
      addMerged(merge.notMatchedInstructions(), names, found);
      addMerged(merge.notMatchedBySourceInstructions(), names, found);
    }
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) addCasts(child, again, found);
  }

  private static void addMerged(Seq<MergeRows.Instruction> instructions, List<Attribute> names, List<Inserted> found) {
    for (MergeRows.Instruction one : CollectionConverters.asJava(instructions)) {
      for (Seq<Expression> row : CollectionConverters.asJava(one.outputs())) {
        List<Expression> values = CollectionConverters.asJava(row);
        for (int at = 0; at < values.size(); at++) {
          addCasts(values.get(at), names.get(at).name(), null, found);
        }
      }
    }
  }

  private static void addAliases(Expression one, LogicalPlan rows, List<Inserted> found) {
    if (one instanceof Alias alias) addCasts(alias.child(), alias.name(), rows, found);
    else for (Expression child : CollectionConverters.asJava(one.children())) addAliases(child, rows, found);
  }

  private static void addCasts(Expression one, String column, LogicalPlan rows, List<Inserted> found) {
    if (one instanceof Cast cast && cast.getTagValue(Cast$.MODULE$.BY_TABLE_INSERTION()).isDefined()) {
      LogicalPlan asked = cast.child().foldable() ? new OneRowRelation() : cast.child().deterministic() ? rows : null;
      found.add(new Inserted(column, cast.child().dataType(), cast.dataType(), cast.child(), asked));
    }
    // around the cast of a whole value; parts of one have no rows of their own
    boolean isWhole = one instanceof CheckOverflowInTableInsert || one instanceof AssertNotNull;
    for (Expression child : CollectionConverters.asJava(one.children())) {
      addCasts(child, column, isWhole ? rows : null, found);
    }
  }

  private static <T> Seq<T> seq(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
