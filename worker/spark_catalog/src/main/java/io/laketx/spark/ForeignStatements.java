package io.laketx.spark;

import io.laketx.spark.service.LakeException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.DescribeColumn;
import scala.runtime.AbstractFunction2;

/**
 * Spark's parser, which says of another system's statement how it is said here. It is asked only where Spark can't parse
 * a statement; a parser of that other system, if the session has one, comes first or is the one that fails.
 *
 * <p>The table of statements, one a line: an example, a pattern, and what to write, with the statement's own table,
 * columns, version and time.
 */
final class ForeignStatements extends AbstractFunction2<SparkSession, ParserInterface, ParserInterface> {
  private static final String TABLE = "foreign_statements.tsv";
  private static final String NAME = "(?<name>(?>(?:`[^`]+`|\\w+)(?:\\.(?:`[^`]+`|\\w+))*))";
  private static final List<Statement> STATEMENTS = read();

  private record Statement(String example, Pattern pattern, String here) {}

  @Override
  public ParserInterface apply(SparkSession session, ParserInterface parser) {
    return (ParserInterface)
        Proxy.newProxyInstance(
            ForeignStatements.class.getClassLoader(),
            new Class<?>[] {ParserInterface.class},
            (proxy, method, arguments) -> {
              try {
                Object plan = method.invoke(parser, arguments);
                if (plan instanceof DescribeColumn && isOfHistory((DescribeColumn) plan) && !hasHistory(session)) {
                  LakeException said = refusal((String) arguments[0]);
                  if (said != null) throw said;
                }
                return plan;
              } catch (InvocationTargetException failed) {
                Throwable cause = failed.getCause();
                boolean isPlan = method.getName().startsWith("parsePlan") && arguments[0] instanceof String;
                LakeException said = isPlan && cause instanceof ParseException ? refusal((String) arguments[0]) : null;
                throw said == null ? cause : said;
              }
            });
  }

  /** `DESCRIBE HISTORY t` is Spark's statement too: a column `t` of a table `history`. */
  private static boolean isOfHistory(DescribeColumn plan) {
    return plan.relation() instanceof UnresolvedTableOrView
        && ((UnresolvedTableOrView) plan.relation()).multipartIdentifier().mkString(".").equalsIgnoreCase("history");
  }

  private static boolean hasHistory(SparkSession session) {
    try {
      return session.catalog().tableExists("history");
    } catch (Exception error) { // Spark says what is wrong when it looks for the table itself
      return true;
    }
  }

  /** Null where the statement is none of another system. */
  private static LakeException refusal(String text) {
    String bare = text.strip().replaceAll(";+\\s*$", "");
    for (Statement one : STATEMENTS) {
      Matcher found = one.pattern.matcher(bare);
      if (!found.matches()) continue;
      return LakeException.invalid(
          "STATEMENT_FOREIGN", one.example + " is a statement of another system: here it is " + filled(one, found));
    }
    return null;
  }

  private static String filled(Statement statement, Matcher found) {
    if (!statement.here.contains("{")) return statement.here;
    String whole = found.group("name");
    String[] parts = whole.replace("`", "").split("\\.");
    boolean hasCatalog = parts.length > 2;
    String table = String.join(".", Arrays.copyOfRange(parts, hasCatalog ? 1 : 0, parts.length));
    String system = hasCatalog ? parts[0] + ".system" : "system";
    String here = statement.here.replace("{whole}", whole).replace("{table}", table).replace("{system}", system);
    if (here.contains("{columns}")) here = here.replace("{columns}", quoted(found.group("columns")));
    for (String value : List.of("version", "time")) {
      String place = "{" + value + "}";
      if (here.contains(place)) here = here.replace(place, found.group(value));
    }
    return here;
  }

  private static String quoted(String columns) {
    String[] names = columns.strip().replace("`", "").split("\\s*,\\s*");
    return "'" + String.join("', '", names) + "'";
  }

  private static List<Statement> read() {
    try (InputStream table = ForeignStatements.class.getResourceAsStream(TABLE)) {
      String text = new String(table.readAllBytes(), StandardCharsets.UTF_8);
      return text.lines().map(line -> line.split("\t")).map(ForeignStatements::statement).toList();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static Statement statement(String[] cells) {
    int flags = Pattern.CASE_INSENSITIVE | Pattern.DOTALL;
    return new Statement(cells[0], Pattern.compile(cells[1].replace("{name}", NAME), flags), cells[2]);
  }
}
