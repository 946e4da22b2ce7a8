package io.laketx.spark.write;

import io.laketx.spark.service.LakeException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.DropPartitions;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.TruncatePartition;
import org.apache.spark.sql.catalyst.plans.logical.TruncateTable;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationInfoImpl;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * A statement once more, with its tables as they are by then: by its text; or by its analysed plan, where a DataFrame or
 * parameters made it. The plan keeps its columns; what else it reads Spark looks up anew before it runs.
 *
 * <p>Like {@link SparkPlans} it uses of Spark what is no public interface.
 */
final class Repetition {
  private final DataSourceV2Relation target; // as it was
  private final Table now;
  private final RowLevelOperationTable changing; // what finds the rows that change; null where rows only come in

  private Repetition(DataSourceV2Relation target, Table now) {
    this.target = target;
    this.now = now;
    changing = target.table() instanceof RowLevelOperationTable before ? changing(before.operation()) : null;
  }

  /** Whether a statement may be tried: one that has a text, or is known as the one that changes a table. */
  static boolean mayBe(QueryExecution execution, String tableId) {
    return execution != null && (text(execution.logical()) != null || part(execution.logical(), tableId) != null);
  }

  /** Runs it; false: it can't, since its table has other columns now. */
  static boolean run(QueryExecution execution, String tableId) {
    String text = text(execution.logical());
    if (text != null) {
      ParquetOut.session().sql(text);
      return true;
    }
    LogicalPlan plan = renewed(part(execution.logical(), tableId));
    if (plan == null) return false;
    Dataset$.MODULE$.ofRows(ParquetOut.session(), plan);
    return true;
  }

  /** The text of a statement that changes rows; null where it isn't all that was asked, or has no text of its own. */
  private static String text(LogicalPlan plan) {
    Option<String> text = plan.origin().sqlText();
    if (text.isEmpty()) return null;
    LogicalPlan asked = parsed(text.get());
    if (asked == null || asked.containsPattern(TreePattern.PARAMETER())) return null;
    LogicalPlan whole = asked instanceof UnresolvedWith with ? with.child() : asked;
    boolean changesRows =
        whole instanceof UpdateTable
            || whole instanceof DeleteFromTable
            || whole instanceof MergeIntoTable
            || whole instanceof InsertIntoStatement
            || whole instanceof ReplaceTableAsSelect
            || whole instanceof TruncateTable
            || whole instanceof TruncatePartition
            || whole instanceof DropPartitions;
    return changesRows ? text.get() : null;
  }

  private static LogicalPlan parsed(String text) {
    try {
      return ParquetOut.session().sessionState().sqlParser().parsePlan(text);
    } catch (ParseException part) {
      return null;
    }
  }

  /** The plan of the change of a table: the whole, or one of several inserts; null where there is none, or two. */
  private static LogicalPlan part(LogicalPlan plan, String tableId) {
    if (plan instanceof ReplaceTableAsSelect || truncated(plan) != null || relation(plan) != null) return plan;
    if (!(plan instanceof Union inserts)) return null;
    List<LogicalPlan> found = new ArrayList<>();
    for (LogicalPlan one : CollectionConverters.asJava(inserts.children())) {
      DataSourceV2Relation target = relation(one);
      if (target != null && tableId.equals(target.table().id())) found.add(one);
    }
    return found.size() == 1 ? found.get(0) : null;
  }

  /** What a TRUNCATE or DROP PARTITION empties; null where it is none. */
  private static ResolvedTable truncated(LogicalPlan plan) {
    boolean truncates = plan instanceof TruncateTable || plan instanceof TruncatePartition || plan instanceof DropPartitions;
    return truncates && plan.children().head() instanceof ResolvedTable table ? table : null;
  }

  /** What one write is into; null where nobody knows its name, or it is no write. */
  private static DataSourceV2Relation relation(LogicalPlan plan) {
    boolean isWrite = plan instanceof V2WriteCommand write && write.table() instanceof DataSourceV2Relation;
    DataSourceV2Relation found = isWrite ? (DataSourceV2Relation) ((V2WriteCommand) plan).table() : null;
    return found == null || found.catalog().isEmpty() || found.identifier().isEmpty() ? null : found;
  }

  /** The plan, with what it changes as it is now; null where that has other columns. */
  private static LogicalPlan renewed(LogicalPlan plan) {
    ResolvedTable truncated = truncated(plan);
    if (truncated != null) {
      Table now = load(truncated.catalog(), truncated.identifier());
      if (!isSame(truncated.table(), now)) return null;
      LogicalPlan table = ResolvedTable.create(truncated.catalog(), truncated.identifier(), now);
      return plan.withNewChildren(CollectionConverters.asScala(List.of(table)).toSeq());
    }
    DataSourceV2Relation target = relation(plan);
    if (target == null) return plan; // Spark looks up the name
    Table before = target.table() instanceof RowLevelOperationTable rows ? rows.table() : target.table();
    Table now = load((TableCatalog) target.catalog().get(), target.identifier().get());
    return isSame(before, now) ? new Repetition(target, now).renewed((V2WriteCommand) plan) : null;
  }

  private static boolean isSame(Table before, Table now) {
    return now.id().equals(before.id()) && Arrays.equals(now.columns(), before.columns());
  }

  private static Table load(TableCatalog catalog, Identifier name) {
    try {
      return catalog.loadTable(name);
    } catch (NoSuchTableException dropped) {
      throw LakeException.invalid("TABLE_UNKNOWN", name + " was dropped meanwhile");
    }
  }

  private LogicalPlan renewed(V2WriteCommand plan) {
    V2WriteCommand found = plan.withNewTable(renewed(target));
    if (!(found instanceof WriteDelta rows)) return (LogicalPlan) found;
    DataSourceV2Relation original = (DataSourceV2Relation) rows.originalTable();
    WriteDelta whole =
        rows.copy(
            rows.table(), rows.condition(), rows.query(), with(original, now), rows.projections(),
            rows.groupFilterCondition(), rows.write());
    return whole.transformWithSubqueries(new InQuery());
  }

  private DataSourceV2Relation renewed(DataSourceV2Relation before) {
    return with(before, changing == null ? now : changing);
  }

  private static DataSourceV2Relation with(DataSourceV2Relation before, Table table) {
    return before.copy(
        table, before.output(), before.catalog(), before.identifier(), before.options(), before.timeTravelSpec());
  }

  private RowLevelOperationTable changing(RowLevelOperation before) {
    SupportsRowLevelOperations table = (SupportsRowLevelOperations) now;
    RowLevelOperationInfoImpl info = new RowLevelOperationInfoImpl(before.command(), target.options());
    return new RowLevelOperationTable(table, table.newRowLevelOperationBuilder(info).build());
  }

  /** The reads by which the rows that change are found. */
  private final class InQuery extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
    @Override
    public boolean isDefinedAt(LogicalPlan plan) {
      return plan instanceof DataSourceV2Relation one && one.table() instanceof RowLevelOperationTable;
    }

    @Override
    @SuppressWarnings("unchecked") // what Scala's compiler would write
    public <A extends LogicalPlan, B> B applyOrElse(A plan, Function1<A, B> otherwise) {
      return isDefinedAt(plan) ? (B) renewed((DataSourceV2Relation) (LogicalPlan) plan) : otherwise.apply(plan);
    }
  }
}
