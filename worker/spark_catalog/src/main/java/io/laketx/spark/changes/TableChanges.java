package io.laketx.spark.changes;

import io.laketx.spark.service.LakeException;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.TimestampFormatter;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/** The function `table_changes('lake.shop.orders', 8, 12)`: another word for the table `changes` with a range. */
public final class TableChanges extends AbstractFunction1<Seq<Expression>, LogicalPlan> {
  /** How SQL calls it. */
  public static final String NAME = "table_changes";

  /** Shown by DESCRIBE FUNCTION. */
  public static final String USAGE =
      "_FUNC_(table, start[, end]) - How a table's rows changed from a version, tag or time to another; both are included.";

  @Override
  public LogicalPlan apply(Seq<Expression> given) {
    List<Expression> arguments = CollectionConverters.asJava(given);
    if (arguments.size() < 2 || arguments.size() > 3) {
      throw LakeException.invalid(
          "ARGUMENTS_INVALID", "say table_changes('lake.shop.orders', start) or table_changes('lake.shop.orders', start, end)");
    }
    Map<String, String> range = new HashMap<>();
    put(range, arguments.get(1), Range.STARTING_VERSION, Range.STARTING_TIMESTAMP);
    if (arguments.size() == 3) put(range, arguments.get(2), Range.ENDING_VERSION, Range.ENDING_TIMESTAMP);
    List<String> table = whole(value(arguments.get(0)).toString());
    table.add(ChangesTable.NAME);
    return new UnresolvedRelation(
        CollectionConverters.asScala(table).toSeq(), new CaseInsensitiveStringMap(range), false);
  }

  /** The name with catalog and namespace, so that nothing else is meant than a table of a lake. */
  private static List<String> whole(String name) {
    CatalogManager catalogs = ((SparkSession) SparkSession.active()).sessionState().catalogManager();
    List<String> given = CollectionConverters.asJava(new CatalystSqlParser().parseMultipartIdentifier(name));
    List<String> found = new ArrayList<>();
    if (given.size() == 1 || !catalogs.isCatalogRegistered(given.get(0))) {
      found.add(catalogs.currentCatalog().name());
      if (given.size() == 1) found.addAll(List.of(catalogs.currentNamespace()));
    }
    found.addAll(given);
    return found;
  }

  private static void put(Map<String, String> range, Expression given, String version, String time) {
    Object value = value(given);
    DataType type = given.dataType();
    if (type.equals(DataTypes.TimestampType)) range.put(time, clock((Long) value) + "Z");
    else if (type.equals(DataTypes.TimestampNTZType)) range.put(time, clock((Long) value));
    else if (type.equals(DataTypes.DateType)) range.put(time, LocalDate.ofEpochDay((Integer) value).toString());
    else range.put(Range.isTime(value.toString()) ? time : version, value.toString());
  }

  private static String clock(long micros) {
    return TimestampFormatter.getFractionFormatter(ZoneOffset.UTC).format(micros);
  }

  private static Object value(Expression given) {
    Object found = given.foldable() ? given.eval(null) : null;
    if (found != null) return found;
    throw LakeException.invalid("ARGUMENTS_INVALID", given.sql() + " is no constant: give a literal");
  }
}
