package io.laketx.spark.write;

import io.laketx.spark.read.TableRead;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanExecBase;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The reads of tables in a plan, wherever they stand: in its source, in subqueries, in views, in what is cached. Streams'
 * sources are none: what they deliver is what was committed before.
 *
 * <p>Like {@link SparkPlans} it uses of Spark what is no public interface.
 */
final class PlanScans {
  private final Set<TableRead> found = new LinkedHashSet<>();
  private final Set<QueryPlan<?>> seen = Collections.newSetFromMap(new IdentityHashMap<>());

  private PlanScans() {}

  /** Of an optimised plan. A read at a version that somebody named is none: it is the same whatever comes later. */
  static List<TableRead> of(QueryPlan<?> plan) {
    PlanScans scans = new PlanScans();
    scans.look(plan);
    return new ArrayList<>(scans.found);
  }

  private void look(QueryPlan<?> plan) {
    if (!seen.add(plan)) return;
    if (plan instanceof DataSourceV2ScanRelation read) add(read.scan());
    if (plan instanceof DataSourceV2ScanExecBase read) add(read.scan());
    for (Object one : CollectionConverters.asJava(plan.children())) look((QueryPlan<?>) one);
    if (plan instanceof V2WriteCommand) return; // its own conditions stand in its query, too
    for (Object one : CollectionConverters.asJava(plan.subqueries())) look((QueryPlan<?>) one);
    for (QueryPlan<?> one : CollectionConverters.asJava(plan.innerChildren())) look(one); // what is cached
    lookBehind(plan);
  }

  /** Plans that Spark hides from those who walk over a plan that runs. */
  private void lookBehind(QueryPlan<?> plan) {
    if (plan instanceof AdaptiveSparkPlanExec adaptive) look(adaptive.inputPlan());
    if (plan instanceof QueryStageExec stage) look(stage.plan());
    if (plan instanceof ReusedExchangeExec reused) look(reused.child());
    if (plan instanceof ReusedSubqueryExec reused) look(reused.child());
  }

  private void add(Scan scan) {
    if (scan instanceof TableRead read && !read.snapshot().isChosen()) found.add(read);
  }
}
