package io.laketx.spark;

import io.laketx.spark.service.LakeException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.parser.NamedParameterContext;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.PositionalParameterContext;
import org.apache.spark.sql.catalyst.plans.logical.DescribeColumn;
import scala.runtime.AbstractFunction2;

/**
 * Spark's parser, which takes another system's statement for what it means here, or says how it is said here. It looks
 * only at what Spark can't parse; a parser of that other system, if the session has one, comes first or is the one that
 * fails.
 */
final class ForeignStatements extends AbstractFunction2<SparkSession, ParserInterface, ParserInterface> {
  private static final Set<String> DESCRIBED = Set.of("history", "detail");

  @Override
  public ParserInterface apply(SparkSession session, ParserInterface parser) {
    return (ParserInterface)
        Proxy.newProxyInstance(
            ForeignStatements.class.getClassLoader(),
            new Class<?>[] {ParserInterface.class},
            (proxy, method, arguments) -> parsed(session, parser, method, arguments));
  }

  private static Object parsed(SparkSession session, ParserInterface parser, Method method, Object[] arguments)
      throws Throwable {
    Object plan = null;
    Throwable failure = null;
    try {
      plan = method.invoke(parser, arguments);
    } catch (InvocationTargetException failed) {
      failure = failed.getCause();
    }
    boolean isForeign = isForeign(session, method, arguments, plan, failure);
    ForeignStatement.Meaning meant = isForeign ? meaning(session, arguments) : null;
    if (meant != null) return takenFor(meant, parser, method, arguments);
    if (failure != null) throw failure;
    boolean isWhole = method.getName().startsWith("parsePlan");
    return isWhole && hasNoParameters(arguments) ? RememberedTarget.of(session, plan) : plan;
  }

  private static boolean hasNoParameters(Object[] arguments) {
    if (arguments.length == 1) return true;
    if (arguments[1] instanceof NamedParameterContext named) return named.params().isEmpty();
    return arguments[1] instanceof PositionalParameterContext listed && listed.params().isEmpty();
  }

  private static boolean isForeign(
      SparkSession session, Method method, Object[] arguments, Object plan, Throwable failure) {
    if (!method.getName().startsWith("parsePlan") || !(arguments[0] instanceof String)) return false;
    return failure == null ? isDescribed(session, plan) : failure instanceof ParseException;
  }

  private static ForeignStatement.Meaning meaning(SparkSession session, Object[] arguments) {
    return ForeignStatement.of((org.apache.spark.sql.classic.SparkSession) session, (String) arguments[0]);
  }

  private static Object takenFor(
      ForeignStatement.Meaning meant, ParserInterface parser, Method method, Object[] arguments) throws Throwable {
    if (!meant.isRun()) {
      throw LakeException.invalid(
          "STATEMENT_FOREIGN", meant.example() + " is a statement of another system: here it is " + meant.here());
    }
    Object[] here = arguments.clone();
    here[0] = meant.here();
    try {
      return method.invoke(parser, here);
    } catch (InvocationTargetException failed) {
      throw failed.getCause();
    }
  }

  /** `DESCRIBE HISTORY t` is Spark's statement too: a column `t` of a table `history`, if there is one. */
  private static boolean isDescribed(SparkSession session, Object plan) {
    if (!(plan instanceof DescribeColumn)) return false;
    if (!(((DescribeColumn) plan).relation() instanceof UnresolvedTableOrView)) return false;
    UnresolvedTableOrView table = (UnresolvedTableOrView) ((DescribeColumn) plan).relation();
    String name = table.multipartIdentifier().mkString(".").toLowerCase(Locale.ROOT);
    return DESCRIBED.contains(name) && !isThere(session, name);
  }

  private static boolean isThere(SparkSession session, String table) {
    try {
      return session.catalog().tableExists(table);
    } catch (Exception error) { // Spark says what is wrong when it looks for the table itself
      return true;
    }
  }
}
