package io.laketx.spark.write;

import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.AppendDataExec;
import org.apache.spark.sql.execution.datasources.v2.AppendDataExecV1;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy;
import org.apache.spark.sql.sources.InsertableRelation;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Plans an INSERT of few rows that the driver has, such as VALUES, without a Spark job: the job would take longer than all
 * else. Spark hands rows over in the driver by its older interface of writes alone.
 */
public final class DriverInserts extends SparkStrategy {
  private final DataSourceV2Strategy strategy;

  public DriverInserts(SparkSession session) {
    strategy = new DataSourceV2Strategy((org.apache.spark.sql.classic.SparkSession) session);
  }

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    if (!(plan instanceof AppendData insert) || insert.write().isEmpty()) return plans();
    if (!(insert.write().get() instanceof LakeWrite write) || !write.handsRows()) return plans();
    if (!(insert.query() instanceof LocalRelation rows) || rows.isStreaming()) return plans();
    if (!(insert.table() instanceof DataSourceV2Relation relation)) return plans();
    if (!(strategy.apply(plan).head() instanceof AppendDataExec known)) return plans();
    SupportsWrite table = (SupportsWrite) relation.table();
    List<InternalRow> data = CollectionConverters.asJava(rows.data());
    return plans(new AppendDataExecV1(table, rows, known.refreshCache(), new DriverInsert(write, data)));
  }

  private static Seq<SparkPlan> plans(SparkPlan... found) {
    return CollectionConverters.asScala(List.of(found)).toSeq();
  }

  private record DriverInsert(LakeWrite write, List<InternalRow> rows) implements V1Write {
    @Override
    public InsertableRelation toInsertableRelation() {
      return (data, overwrites) -> write.insert(rows);
    }

    @Override
    public String toString() {
      return write.description(); // plans show it
    }
  }
}
