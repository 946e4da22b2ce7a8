package io.laketx.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.classic.SparkSession;

/**
 * A statement of another system, and what it is here.
 *
 * <p>The table of them, one a line: whose it is, an example, whether it `runs` here or we only say what to write, a
 * pattern, and the statement here, with the given one's table, columns, version and so on.
 */
record ForeignStatement(String example, boolean isRun, Pattern pattern, String here) {
  private static final String TABLE = "foreign_statements.tsv";
  private static final String NAME = "(?<name>(?>(?:`[^`'\\\\]+`|\\w+)(?:\\.(?:`[^`'\\\\]+`|\\w+))*))";
  private static final String SOURCE = "{source}"; // a second table
  private static final List<String> VALUES = List.of("version", "time", "limit", "tag", "operation");
  private static final List<ForeignStatement> ALL = read();

  /** What a statement means here; `isRun` if it can take its place. */
  record Meaning(String example, boolean isRun, String here) {}

  /** Null where the statement is none of another system. */
  static Meaning of(SparkSession session, String text) {
    String bare = text.strip().replaceAll(";+\\s*$", "");
    for (ForeignStatement one : ALL) {
      Matcher found = one.pattern.matcher(bare);
      if (found.matches()) return one.meaning(session, found);
    }
    return null;
  }

  private Meaning meaning(SparkSession session, Matcher found) {
    if (!here.contains("{")) return new Meaning(example, isRun, here);
    String whole = found.group("name");
    NamedTable table = NamedTable.of(session, whole);
    String said = here.replace("{whole}", whole).replace("{table}", table.name()).replace("{system}", table.system());
    if (said.contains("{columns}")) said = said.replace("{columns}", quoted(found.group("columns")));
    if (said.contains(SOURCE)) {
      String given = found.group("source");
      NamedTable source = NamedTable.of(session, given);
      if (source.isOfLake() != table.isOfLake() || !source.catalog().equals(table.catalog())) {
        String copied = "CREATE TABLE " + whole + " AS SELECT * FROM " + given + ", between two catalogs";
        return new Meaning(example, false, copied);
      }
      said = said.replace(SOURCE, source.name());
    }
    for (String value : VALUES) {
      String place = "{" + value + "}";
      if (said.contains(place)) said = said.replace(place, found.group(value));
    }
    return new Meaning(example, isRun && table.isOfLake(), said);
  }

  private static String quoted(String columns) {
    String[] names = columns.strip().replace("`", "").split("\\s*,\\s*");
    return "'" + String.join("', '", names) + "'";
  }

  private static List<ForeignStatement> read() {
    try (InputStream table = ForeignStatement.class.getResourceAsStream(TABLE)) {
      String text = new String(table.readAllBytes(), StandardCharsets.UTF_8);
      return text.lines().map(line -> line.split("\t")).map(ForeignStatement::of).toList();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static ForeignStatement of(String[] cells) {
    int flags = Pattern.CASE_INSENSITIVE | Pattern.DOTALL;
    String words = cells[3].replace("{name}", NAME).replace(SOURCE, NAME.replace("<name>", "<source>"));
    Pattern pattern = Pattern.compile(words, flags);
    return new ForeignStatement(cells[1], cells[2].equals("runs"), pattern, cells[4]);
  }
}
