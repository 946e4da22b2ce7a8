package io.laketx.spark.changes;

import io.laketx.spark.WireTypes;
import io.laketx.spark.changes.Range.Looker;
import io.laketx.spark.read.Snapshot;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** How a table's rows changed, as a table: `SELECT * FROM lake.shop.orders.changes WHERE _commit_version > 7`. */
public final class ChangesTable implements org.apache.spark.sql.connector.catalog.Table, SupportsRead {
  /** The name that it has beside its table. */
  public static final String NAME = "changes";

  /** The option by which the table itself is read like this. */
  public static final String FEED = "readChangeFeed";

  /** In which way; see {@link ChangesMode}. */
  public static final String MODE = "mode";

  /** The option by which a version that is named was the newest one for the caller: what writes its rows has read it. */
  public static final String VERSION_COUNTS = "versionCounts";

  /** The options that decide what the table is. */
  public static final Set<String> STATE =
      Set.of(
          FEED,
          MODE,
          VERSION_COUNTS,
          Range.STARTING_VERSION,
          Range.ENDING_VERSION,
          Range.STARTING_TIMESTAMP,
          Range.ENDING_TIMESTAMP);

  private final String name;
  private final Snapshot table;
  private final StructType columns;
  private final StructType whole;

  private ChangesTable(String name, Snapshot table) {
    this.name = name;
    this.table = table;
    columns = WireTypes.schemaOf(table.meta().getColumnsList());
    whole = ChangeColumns.beside(table, columns, ChangeColumns.TIME);
  }

  /** Up to a version of the table. */
  public static ChangesTable of(String name, Snapshot table) {
    return new ChangesTable(name, table);
  }

  /** The options for the changes after a version. */
  public static CaseInsensitiveStringMap range(long begin, String mode) {
    return new CaseInsensitiveStringMap(Map.of(Range.STARTING_VERSION, Long.toString(begin + 1), MODE, mode));
  }

  /** The same up to the version that the options say, if they do. */
  public ChangesTable until(CaseInsensitiveStringMap options) {
    Long end = new Looker(table.service(), table.tableId()).end(options);
    if (end == null) return this;
    Snapshot found = Snapshot.at(table.service(), table.meta(), end);
    return new ChangesTable(name, options.getBoolean(VERSION_COUNTS, false) ? found : found.chosen());
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  @SuppressWarnings("deprecation") // what Spark resolves comes from here
  public StructType schema() {
    return whole;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    Looker look = new Looker(table.service(), table.tableId());
    ChangesMode mode = ChangesMode.of(options.getOrDefault(MODE, ChangesMode.LOG.name()));
    return new ChangesScanBuilder(name, table, columns, whole, () -> look.begin(options), mode, options);
  }
}
