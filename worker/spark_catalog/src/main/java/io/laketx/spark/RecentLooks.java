package io.laketx.spark;

import io.laketx.v1.Table;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.connector.catalog.Identifier;

/** The tables that statements were analysed with a moment ago, for Spark, which looks at each once more before it runs. */
final class RecentLooks {
  private static final long RECENT_NS = TimeUnit.SECONDS.toNanos(5);
  private static final int TABLES_MAX = 1_000;

  private final Map<Identifier, Look> looks = new LinkedHashMap<>();

  private record Look(Table table, long atNs) {}

  /** `table` is null where there is none. */
  synchronized void keep(Identifier ident, Table table) {
    looks.remove(ident);
    if (table == null) return;
    looks.put(ident, new Look(table, System.nanoTime()));
    if (looks.size() > TABLES_MAX) looks.remove(looks.keySet().iterator().next());
  }

  /** Null where the last look is longer ago. */
  synchronized Table recent(Identifier ident) {
    Look found = looks.get(ident);
    return found == null || System.nanoTime() - found.atNs > RECENT_NS ? null : found.table;
  }

  /** Whenever that was; null where there was none. */
  synchronized Table known(Identifier ident) {
    Look found = looks.get(ident);
    return found == null ? null : found.table;
  }
}
