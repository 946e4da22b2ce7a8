package io.laketx.spark.define;

import io.laketx.spark.service.LakeException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.CreateMaterializedViewAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Says what to write for CREATE MATERIALIZED VIEW, which Spark knows in its pipelines alone: DuckDB computes views here. */
public final class MaterializedViews extends SparkStrategy {
  private static final String HERE =
      "Spark creates no materialized view: write the same statement in laketx sql, lake.create_materialized_view(…) in"
          + " Python, or laketx view create in a terminal";

  public MaterializedViews(SparkSession session) {}

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    if (plan instanceof CreateMaterializedViewAsSelect) throw LakeException.invalid("STATEMENT_FOREIGN", HERE);
    return CollectionConverters.asScala(java.util.List.<SparkPlan>of()).toSeq();
  }
}
