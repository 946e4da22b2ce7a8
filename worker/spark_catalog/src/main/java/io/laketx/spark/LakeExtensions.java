package io.laketx.spark;

import io.laketx.spark.changes.TableChanges;
import io.laketx.spark.define.MaterializedViews;
import io.laketx.spark.write.DriverInserts;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import scala.Option;
import scala.Tuple3;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** What a session gets by `spark.sql.extensions`, which a catalog can't give: the function `table_changes`, statements of other systems, which columns an INSERT gives, and INSERTs without a job. */
public final class LakeExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions session) {
    ExpressionInfo described =
        new ExpressionInfo(TableChanges.class.getName(), null, TableChanges.NAME, TableChanges.USAGE, "");
    session.injectTableFunction(
        new Tuple3<>(new FunctionIdentifier(TableChanges.NAME, Option.empty()), described, new TableChanges()));
    session.injectParser(new ForeignStatements());
    session.injectHintResolutionRule(GivenColumns::new);
    session.injectPlannerStrategy(DriverInserts::new);
    session.injectPlannerStrategy(MaterializedViews::new);
    return BoxedUnit.UNIT;
  }
}
