package io.laketx.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias$;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Marks the rows of an INSERT by names, before Spark fills in the columns that they lack: images of a table with partial
 * updates set only the columns that are given. The mark is a name around the rows, which the optimizer removes.
 */
public final class GivenColumns extends Rule<LogicalPlan> {
  private static final String BY_NAME = "_laketx_by_name"; // the rows have the names
  private static final String LISTED = "_laketx_listed"; // what Spark puts around the rows has those of the statement

  private final SparkSession session;

  GivenColumns(SparkSession session) {
    this.session = session;
  }

  /** The names, in lower case, of the columns that the query of an analysed INSERT by names gives; null: nobody knows. */
  public static Set<String> of(LogicalPlan query) {
    LogicalPlan named = named(query);
    if (named == null) return null;
    return CollectionConverters.asJava(named.output()).stream()
        .map(one -> one.name().toLowerCase(Locale.ROOT))
        .collect(Collectors.toSet());
  }

  /** What has the names. */
  private static LogicalPlan named(LogicalPlan query) {
    LogicalPlan above = query;
    LogicalPlan rows = query;
    while (rows instanceof Project project) {
      above = project;
      rows = project.child();
    }
    if (!(rows instanceof SubqueryAlias mark)) return null;
    if (mark.alias().equals(BY_NAME)) return mark;
    return mark.alias().equals(LISTED) ? above : null;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof InsertIntoStatement insert) {
      boolean isListed = !insert.userSpecifiedCols().isEmpty();
      boolean isByName = isListed || insert.byName();
      return isByName && isOfLake(insert.table()) ? marked(insert, insert.query(), isListed ? LISTED : BY_NAME) : plan;
    }
    if (plan instanceof AppendData append) {
      return append.isByName() && isOfLake((LogicalPlan) append.table()) ? marked(append, append.query(), BY_NAME) : plan;
    }
    if (!(plan instanceof Union) && !(plan instanceof WithCTE)) return plan;
    List<LogicalPlan> parts = CollectionConverters.asJava(plan.children()).stream().map(this::apply).toList();
    return plan.withNewChildren(CollectionConverters.asScala(parts).toSeq());
  }

  private static LogicalPlan marked(LogicalPlan insert, LogicalPlan query, String mark) {
    if (named(query) != null) return insert;
    LogicalPlan found = SubqueryAlias$.MODULE$.apply(mark, query);
    return insert.withNewChildren(CollectionConverters.asScala(List.of(found)).toSeq());
  }

  private boolean isOfLake(LogicalPlan table) {
    if (table instanceof DataSourceV2Relation relation) return relation.table() instanceof LakeTable;
    if (!(table instanceof UnresolvedRelation name)) return false;
    return RememberedTarget.lakeOf(session, new ArrayList<>(CollectionConverters.asJava(name.multipartIdentifier()))) != null;
  }
}
