package io.laketx.spark.service;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/**
 * Procedures and metadata tables of other systems, and what they are here. The table of them, one a line: whose they
 * are, `procedure` or `table`, their names, and what to write.
 */
public final class ForeignWords {
  private static final String TABLE = "/io/laketx/spark/foreign_words.tsv";
  private static final Map<String, ForeignWord> KNOWN = read();

  /** A word of other systems. */
  private record ForeignWord(String systems, String here) {}

  private ForeignWords() {}

  /** What to write instead of a procedure; empty where no other system has it. */
  public static String procedure(String catalog, String name) {
    ForeignWord found = find("procedure", name);
    return found == null ? "" : said(name, found, found.here.replace("{catalog}", catalog));
  }

  /** What to read instead of a metadata table, likewise. */
  public static String table(String table, String name) {
    ForeignWord found = find("table", name);
    return found == null ? "" : said(name, found, found.here.replace("{table}", table));
  }

  private static ForeignWord find(String kind, String name) {
    return KNOWN.get(kind + " " + name.toLowerCase(Locale.ROOT));
  }

  private static String said(String name, ForeignWord found, String here) {
    return name + " is a word of " + found.systems.replace(", ", " and ") + ": here it is " + here;
  }

  private static Map<String, ForeignWord> read() {
    Map<String, ForeignWord> found = new HashMap<>();
    try (InputStream table = ForeignWords.class.getResourceAsStream(TABLE)) {
      for (String line : new String(table.readAllBytes(), StandardCharsets.UTF_8).split("\n")) {
        String[] cells = line.split("\t");
        for (String name : cells[2].split(" ")) found.put(cells[1] + " " + name, new ForeignWord(cells[0], cells[3]));
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return found;
  }
}
