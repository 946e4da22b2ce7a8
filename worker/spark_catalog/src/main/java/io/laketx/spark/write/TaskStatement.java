package io.laketx.spark.write;

import io.laketx.spark.LakeTable;
import io.laketx.spark.service.LakeException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.CallMethodViaReflection;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;
import org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.CommandExecutionMode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The statement of a periodic task, analysed and not run: what it does, which table it changes, which ones it reads.
 *
 * <p>A worker runs it with its own rights, so it may reach nothing but rows of the lake's tables: no files, other catalogs,
 * programs or classes. Like {@link SparkPlans} this uses of Spark what is no public interface.
 */
public final class TaskStatement {
  private static final String INVALID = "PERIODIC_STATEMENT_INVALID";

  private final String catalog;
  private final Set<String> tables = new LinkedHashSet<>();
  private final Set<QueryPlan<?>> seen = Collections.newSetFromMap(new IdentityHashMap<>());

  private TaskStatement(String catalog) {
    this.catalog = catalog;
  }

  /** The operation, the id of the table that it changes, and the ids of all tables; the catalog is the lake's. */
  public static String[] analyse(SparkSession session, String catalog, String text) {
    return session.withActive(() -> new TaskStatement(catalog).parts(analysed(session, text)));
  }

  private static LogicalPlan analysed(SparkSession session, String text) {
    try {
      LogicalPlan parsed = session.sessionState().sqlParser().parsePlan(text);
      return session.sessionState().executePlan(parsed, CommandExecutionMode.SKIP()).analyzed();
    } catch (ParseException error) {
      throw refused(error.getMessage().strip().lines().findFirst().orElse("it can't be parsed"));
    }
  }

  private String[] parts(LogicalPlan plan) {
    LogicalPlan target = plan instanceof V2WriteCommand write ? (LogicalPlan) write.table() : changed(plan);
    while (target instanceof SubqueryAlias alias) target = alias.child();
    if (!(target instanceof DataSourceV2Relation relation)) {
      throw refused("a periodic task runs one INSERT, INSERT OVERWRITE, UPDATE, DELETE or MERGE of a table of the lake");
    }
    look(plan);
    List<String> parts = new ArrayList<>(List.of(operation(plan), idOf(relation)));
    parts.addAll(tables);
    return parts.toArray(String[]::new);
  }

  private static LogicalPlan changed(LogicalPlan plan) {
    if (plan instanceof DeleteFromTable delete) return delete.table();
    if (plan instanceof UpdateTable update) return update.table();
    return plan instanceof MergeIntoTable merge ? merge.targetTable() : null;
  }

  private static String operation(LogicalPlan plan) {
    if (plan instanceof RowLevelWrite write) return write.operation().command().name().toLowerCase(Locale.ROOT);
    if (plan instanceof OverwriteByExpression || plan instanceof OverwritePartitionsDynamic) return "overwrite";
    if (plan instanceof AppendData) return "insert";
    if (plan instanceof DeleteFromTable) return "delete";
    if (plan instanceof UpdateTable) return "update";
    if (plan instanceof MergeIntoTable) return "merge";
    throw refused("a periodic task can't run " + plan.nodeName());
  }

  private void look(QueryPlan<?> plan) {
    if (!seen.add(plan)) return;
    if (plan instanceof DataSourceV2Relation relation) tables.add(idOf(relation));
    else if (plan.children().isEmpty() && !isOfRowsGiven(plan)) throw refused("it reads " + plan.nodeName());
    if (plan instanceof ScriptTransformation) throw refused("it runs a program");
    if (plan instanceof V2WriteCommand write) look((QueryPlan<?>) write.table());
    for (Expression one : CollectionConverters.asJava(plan.expressions())) look(one);
    for (Object one : CollectionConverters.asJava(plan.children())) look((QueryPlan<?>) one);
    for (Object one : CollectionConverters.asJava(plan.subqueries())) look((QueryPlan<?>) one);
    for (QueryPlan<?> one : CollectionConverters.asJava(plan.innerChildren())) look(one);
  }

  private static boolean isOfRowsGiven(QueryPlan<?> plan) {
    return plan instanceof LocalRelation
        || plan instanceof OneRowRelation
        || plan instanceof Range
        || plan instanceof CTERelationRef;
  }

  private static void look(Expression expression) {
    if (expression instanceof CallMethodViaReflection || expression instanceof UserDefinedExpression) {
      throw refused("it calls " + expression.prettyName() + ", which is code of its own");
    }
    for (Expression one : CollectionConverters.asJava(expression.children())) look(one);
  }

  private String idOf(DataSourceV2Relation relation) {
    Table table = relation.table() instanceof RowLevelOperationTable changing ? changing.table() : relation.table();
    boolean isOfLake = relation.catalog().isDefined() && relation.catalog().get().name().equals(catalog);
    if (table instanceof LakeTable lake && isOfLake) return lake.id();
    throw refused("it names " + relation.name() + ": a task reads and changes rows of tables of the lake");
  }

  private static LakeException refused(String why) {
    return LakeException.invalid(INVALID, why);
  }
}
