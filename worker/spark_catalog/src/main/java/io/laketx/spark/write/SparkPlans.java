package io.laketx.spark.write;

import io.laketx.spark.GivenColumns;
import io.laketx.spark.read.TableRead;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.ResolvedInlineTable;
import org.apache.spark.sql.catalyst.expressions.Alias$;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.CheckOverflowInTableInsert;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InterpretedOrdering;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.SortOrder$;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.V2ExpressionUtils$;
import org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.InsertOnlyMerge;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTableAsSelectPlan;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.errors.QueryExecutionErrors$;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.internal.connector.PredicateUtils$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * All that is used of Spark's plans and expressions beyond its public interfaces. What a new minor version of Spark
 * changes is mended here.
 */
final class SparkPlans {
  private static final String VALUE = "_laketx_value";
  private static final String EXECUTION = "spark.sql.execution.id";
  private static final String ROOT = "spark.sql.execution.root.id";

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

  /** What it reads; null where it can't be seen. */
  static List<TableRead> reads() {
    QueryExecution execution = execution();
    return execution == null ? null : PlanScans.of(execution.optimizedPlan());
  }

  /** Whether it is an INSERT of rows that it brings with it, at most so many; it is not planned yet. */
  static boolean bringsRows(long rowsMax, long bytesMax) {
    QueryExecution execution = execution();
    AppendData insert = execution == null ? null : find(execution.analyzed(), AppendData.class);
    if (insert == null || insert.query().containsPattern(TreePattern.PLAN_EXPRESSION())) return false;
    List<LogicalPlan> leaves = CollectionConverters.asJava(insert.query().collectLeaves());
    long rows = rowsBrought(insert.query());
    return rows >= 0 && rows <= rowsMax && leaves.stream().mapToLong(SparkPlans::bytesBrought).sum() <= bytesMax;
  }

  /** -1: nobody knows. */
  private static long rowsBrought(LogicalPlan plan) {
    if (plan instanceof LocalRelation rows) return rows.isStreaming() ? -1 : rows.data().size();
    if (plan instanceof ResolvedInlineTable rows) return rows.rows().size();
    if (plan instanceof OneRowRelation) return 1;
    boolean isSame =
        plan instanceof Project || plan instanceof SubqueryAlias || plan instanceof View || plan instanceof Filter;
    return isSame ? rowsBrought(plan.children().head()) : -1;
  }

  private static long bytesBrought(LogicalPlan plan) {
    if (!(plan instanceof LocalRelation rows)) return 0;
    UnsafeProjection projection = UnsafeProjection.create(rows.schema());
    long found = 0;
    for (InternalRow one : CollectionConverters.asJava(rows.data())) found += projection.apply(one).getSizeInBytes();
    return found;
  }

  /** The options that a DELETE names for its table; none for statements that have no place for them. */
  static CaseInsensitiveStringMap writeOptions() {
    QueryExecution execution = execution();
    if (execution == null) return CaseInsensitiveStringMap.empty();
    DeleteFromTable delete = find(execution.analyzed(), DeleteFromTable.class);
    WriteDelta change = find(execution.analyzed(), WriteDelta.class);
    LogicalPlan table = delete != null ? delete.table() : change != null ? (LogicalPlan) change.table() : null;
    DataSourceV2Relation relation = table == null ? null : find(table, DataSourceV2Relation.class);
    return relation == null ? CaseInsensitiveStringMap.empty() : relation.options();
  }

  /** Whether it is a MERGE that inserts alone. */
  static boolean isInsertOnlyMerge() {
    QueryExecution execution = execution();
    return execution != null && isInsertOnlyMerge(execution.analyzed());
  }

  private static boolean isInsertOnlyMerge(LogicalPlan plan) {
    return plan instanceof InsertOnlyMerge
        || CollectionConverters.asJava(plan.children()).stream().anyMatch(SparkPlans::isInsertOnlyMerge);
  }

  /** The first of these columns that the UPDATE sets to anything but itself; null where it sets none, or can't be seen. */
  static String firstSet(List<String> columns) {
    QueryExecution execution = execution();
    WriteDelta write = execution == null || columns.isEmpty() ? null : find(execution.analyzed(), WriteDelta.class);
    return write != null && write.query() instanceof Project rows ? firstSet(rows, columns) : null;
  }

  private static String firstSet(Project rows, List<String> columns) {
    for (NamedExpression one : CollectionConverters.asJava(rows.projectList())) {
      if (!(one instanceof Alias value) || !columns.contains(value.name())) continue;
      Expression set = bare(value.child());
      if (!isOf(rows.child(), set) || !nameOf(set).equals(value.name())) return value.name();
    }
    return null;
  }

  /** The columns that an UPDATE sets, and those whose values it uses; null: any. */
  record Updated(Set<String> set, Set<String> used) {}

  /** Null where it can't be seen. */
  static Updated updated(Table meta) {
    QueryExecution execution = execution();
    WriteDelta write = execution == null ? null : find(execution.analyzed(), WriteDelta.class);
    if (write == null || !(write.query() instanceof Project rows)) return null;
    Set<String> columns = new HashSet<>();
    meta.getColumnsList().forEach(one -> columns.add(one.getName()));
    Set<String> set = new HashSet<>();
    List<Expression> uses = new ArrayList<>();
    for (NamedExpression one : CollectionConverters.asJava(rows.projectList())) {
      if (!(one instanceof Alias value) || !columns.contains(value.name())) continue;
      if (firstSet(rows, List.of(value.name())) == null) continue;
      set.add(value.name());
      uses.add(value.child());
    }
    LogicalPlan read = rows.child();
    if (read instanceof Filter filter) {
      uses.add(filter.condition());
      read = filter.child();
    }
    Set<String> used = new HashSet<>();
    for (Expression one : uses) {
      for (Expression leaf : CollectionConverters.asJava(one.collectLeaves())) {
        if (leaf instanceof Attribute column) used.add(column.name());
      }
    }
    boolean isPlain = read.children().isEmpty() && !mayHaveSubquery() && columns.containsAll(used);
    return new Updated(set, isPlain ? used : null);
  }

  /** The names, in lower case, of the columns that an INSERT gives values for; null: nobody knows. */
  static Set<String> given(Table meta) {
    QueryExecution execution = execution();
    AppendData insert = execution == null ? null : find(execution.analyzed(), AppendData.class);
    if (insert == null) return null;
    if (insert.isByName()) return GivenColumns.of(insert.query());
    return meta.getColumnsList().stream().map(one -> one.getName().toLowerCase(Locale.ROOT)).collect(Collectors.toSet());
  }

  /** Whether rows are written for a CREATE TABLE IF NOT EXISTS … AS SELECT, by text or by DataFrame. */
  static boolean isForNewTableAlone() {
    QueryExecution whole = definition();
    return whole != null && whole.logical() instanceof CreateTableAsSelect found && found.ignoreIfExists();
  }

  /** The REPLACE TABLE … AS SELECT that rows are written for, by text or by DataFrame; null where it is none. */
  static QueryExecution replacement() {
    QueryExecution whole = definition();
    return whole != null && whole.logical() instanceof ReplaceTableAsSelect ? whole : null;
  }

  /**
   * The statement that makes a table of the rows that are written; null where there is none. Spark runs the write within
   * it, and it may run within others: a batch of a stream.
   */
  private static QueryExecution definition() {
    QueryExecution write = execution();
    if (write == null || idOf(ROOT) < 0) return null;
    for (long id = idOf(EXECUTION); id >= idOf(ROOT); id--) {
      QueryExecution found = SQLExecution.getQueryExecution(id);
      boolean isIt = found != null && found.logical() instanceof V2CreateTableAsSelectPlan plan && has(write.logical(), plan.query());
      if (isIt) return found;
    }
    return null;
  }

  private static boolean has(LogicalPlan plan, LogicalPlan part) {
    if (plan == part) return true;
    return CollectionConverters.asJava(plan.children()).stream().anyMatch(child -> has(child, part));
  }

  private static <T extends LogicalPlan> T find(LogicalPlan plan, Class<T> kind) {
    if (kind.isInstance(plan)) return kind.cast(plan);
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) {
      T found = find(child, kind);
      if (found != null) return found;
    }
    return null;
  }

  /** Null where it can't be seen. */
  static QueryExecution execution() {
    return SQLExecution.getQueryExecution(idOf(EXECUTION));
  }

  /** That of the statement, or the one within which all others run; -1: nobody knows. */
  private static long idOf(String property) {
    String id = ParquetOut.session().sparkContext().getLocalProperty(property);
    return id == null ? -1 : Long.parseLong(id);
  }

  /** A cast that Spark added, of values for a column, and where they come from; null where that can't be asked again. */
  record Inserted(String column, DataType from, DataType to, Expression value, LogicalPlan rows) {
    /** A value that is another one after the cast, as text; null: none is, or nobody knows. */
    String changed() {
      Alias named =
          Alias$.MODULE$.apply(
              value, VALUE, NamedExpression$.MODULE$.newExprId(), seq(List.of()), Option.empty(), seq(List.of()));
      Dataset<Row> values = Dataset$.MODULE$.ofRows(ParquetOut.session(), new Project(seq(List.of(named)), rows));
      Column given = functions.col(VALUE); // types as text would mean what the session says
      List<Row> lost =
          values
              .where(functions.not(given.try_cast(to).try_cast(from).eqNullSafe(given)))
              .select(given.cast(DataTypes.StringType))
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

  // -- a MERGE

  /** Null where it is none, or can't be seen. */
  static MergeRows merge() {
    QueryExecution execution = execution();
    return execution == null ? null : find(execution.analyzed(), MergeRows.class);
  }

  // -- one that is an insert by key

  /**
   * Whether the MERGE that runs makes every row that comes in the row of its key, whatever the table has: it is ON the key
   * alone, and its one clause for rows that match writes what its one clause for the others writes.
   */
  static boolean isUpsert(Table meta) {
    return upsert(meta) != null;
  }

  /** Whether two rows come in for one row that is there; asked of an upsert alone. */
  static boolean hasManyMatches(Table meta) {
    Join join = upsert(meta);
    List<NamedExpression> key = new ArrayList<>();
    for (Attribute one : CollectionConverters.asJava(join.left().output())) {
      if (meta.getPrimaryKeyList().contains(one.name())) key.add(one);
    }
    Join inner = join.copy(join.left(), join.right(), Inner$.MODULE$, join.condition(), join.hint());
    Dataset<Row> matches = Dataset$.MODULE$.ofRows(ParquetOut.session(), new Project(seq(key), inner));
    return matches.count() > matches.distinct().count();
  }

  /** What Spark says of it. */
  static RuntimeException manyMatches() {
    return QueryExecutionErrors$.MODULE$.mergeCardinalityViolationError();
  }

  /**
   * Whether it is a MERGE that adds no row, or one that has compared the whole key of each row that comes in, and nothing
   * else, with all rows of the table.
   */
  static boolean mergesByKey(Table meta) {
    MergeRows merge = merge();
    if (merge == null) return false;
    if (merge.notMatchedInstructions().isEmpty()) return true;
    if (!(merge.child() instanceof Join join) || join.condition().isEmpty() || !isWhole(join.left())) return false;
    Map<String, Expression> sources = keySources(join, meta);
    if (sources == null) return false;
    for (MergeRows.Instruction one : CollectionConverters.asJava(merge.notMatchedInstructions())) {
      for (Map.Entry<String, Expression> key : sources.entrySet()) {
        if (!(one instanceof MergeRows.Keep keep) || !adds(keep, key.getKey(), key.getValue(), meta)) return false;
      }
    }
    return true;
  }

  /** Whether the key of the row that it adds is what was compared. */
  private static boolean adds(MergeRows.Keep keep, String column, Expression source, Table meta) {
    List<Expression> output = CollectionConverters.asJava(keep.output());
    for (int at = 0; at < meta.getColumnsCount(); at++) {
      if (meta.getColumns(at).getName().equals(column)) return bare(output.get(1 + at)).semanticEquals(source);
    }
    return false;
  }

  private static Join upsert(Table meta) {
    MergeRows merge = merge();
    if (merge == null || !(merge.child() instanceof Join join) || join.condition().isEmpty()) return null;
    List<Expression> matched = written(merge.matchedInstructions(), meta);
    List<Expression> others = written(merge.notMatchedInstructions(), meta);
    if (matched == null || others == null || !merge.notMatchedBySourceInstructions().isEmpty()) return null;
    if (!isWhole(join.left())) return null;
    Map<String, Expression> sources = keySources(join, meta);
    if (sources == null) return null;
    for (int at = 0; at < others.size(); at++) {
      Expression found = others.get(at);
      String column = meta.getColumns(at).getName();
      Expression source = sources.get(column);
      boolean isKept = source != null && isOf(join.left(), matched.get(at)) && nameOf(matched.get(at)).equals(column);
      if (!isKept && !found.semanticEquals(matched.get(at))) return null;
      if (source != null && !bare(found).semanticEquals(source)) return null;
    }
    return join;
  }

  /** Whether the statement asks for all rows of the table. */
  static boolean isWhole(LogicalPlan target) {
    LogicalPlan rows = target instanceof Project project ? project.child() : target;
    if (rows instanceof Filter filter && filter.condition().equals(Literal$.MODULE$.TrueLiteral())) rows = filter.child();
    return rows.children().isEmpty();
  }

  /** What the only instruction writes into the table's columns; null where there are others, or it has a condition. */
  private static List<Expression> written(Seq<MergeRows.Instruction> instructions, Table meta) {
    if (instructions.size() != 1 || !(instructions.head() instanceof MergeRows.Keep keep)) return null;
    if (!keep.condition().equals(Literal$.MODULE$.TrueLiteral())) return null;
    List<Expression> output = CollectionConverters.asJava(keep.output());
    int count = meta.getColumnsCount(); // after what is done with the row
    return output.size() <= count ? null : output.subList(1, 1 + count);
  }

  /** By the columns of the key, what of a row that comes in they must equal; null where more is asked, or less. */
  static Map<String, Expression> keySources(Join join, Table meta) {
    Map<String, Expression> found = new HashMap<>();
    List<Expression> open = new ArrayList<>(List.of(join.condition().get()));
    while (!open.isEmpty()) {
      Expression one = open.remove(open.size() - 1);
      if (one instanceof And both) {
        open.addAll(List.of(both.left(), both.right()));
        continue;
      }
      if (!(one instanceof BinaryComparison equal) || !(one instanceof EqualTo || one instanceof EqualNullSafe)) return null;
      boolean isLeft = isOf(join.left(), equal.left());
      Expression column = isLeft ? equal.left() : equal.right();
      Expression source = isLeft ? equal.right() : equal.left();
      if (!(column instanceof Attribute key) || !isOf(join.left(), key)) return null;
      if (!source.deterministic() || !source.references().subsetOf(join.right().outputSet())) return null;
      if (found.put(key.name(), source) != null) return null;
    }
    return found.keySet().equals(Set.copyOf(meta.getPrimaryKeyList())) ? found : null;
  }

  // -- columns of a plan

  static boolean isOf(LogicalPlan plan, Expression one) {
    return one instanceof Attribute column && plan.outputSet().contains(column);
  }

  static String nameOf(Expression column) {
    return ((Attribute) column).name();
  }

  /** Without a check for NULL around it. */
  static Expression bare(Expression value) {
    return value instanceof AssertNotNull check ? check.child() : value;
  }

  private static <T> Seq<T> seq(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
