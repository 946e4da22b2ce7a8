package io.laketx.spark;

import io.laketx.spark.read.SparkInternals;
import io.laketx.spark.service.LakeException;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsCatalogOptions;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableContext;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The format `laketx`: `spark.read.format("laketx").load("lake.shop.orders")` reads a table of a catalog of the session,
 * and `df.write.format("laketx").save("lake.shop.orders")` writes it.
 *
 * <p>Spark leaves batches to the catalog. For streams it asks here for the table.
 */
public final class LakeSource implements SupportsCatalogOptions, DataSourceRegister {
  private static final String PATH = "path"; // where Spark puts what load() and save() are given
  private static final String CATALOG = "spark.sql.catalog.";
  private static final String VERSION = "versionAsOf";
  private static final String TIMESTAMP = "timestampAsOf";
  private static final TableContext NEWEST = new TableContext(null, Set.of());

  @Override
  public String shortName() {
    return "laketx";
  }

  @Override
  public String extractCatalog(CaseInsensitiveStringMap options) {
    String[] names = names(options);
    String catalog = isCatalog(names[0]) ? names[0] : SparkSession.active().catalog().currentCatalog();
    if (isCatalog(catalog)) return catalog;
    throw LakeException.invalid(
        "CATALOG_MISSING",
        text(names) + " names no catalog of this session: write catalog.namespace.table, such as lake.shop.orders");
  }

  @Override
  public Identifier extractIdentifier(CaseInsensitiveStringMap options) {
    String[] names = names(options);
    if (isCatalog(names[0])) names = Arrays.copyOfRange(names, 1, names.length);
    else if (names.length == 1) names = inCurrentNamespace(names[0]);
    if (names.length == 0) throw unnamed();
    int last = names.length - 1;
    return Identifier.of(Arrays.copyOf(names, last), names[last]);
  }

  @Override
  public Optional<String> extractTimeTravelVersion(CaseInsensitiveStringMap options) {
    return Optional.ofNullable(options.get(VERSION));
  }

  @Override
  public Optional<String> extractTimeTravelTimestamp(CaseInsensitiveStringMap options) {
    return Optional.ofNullable(options.get(TIMESTAMP));
  }

  @Override
  @SuppressWarnings("deprecation") // a table's columns come from there
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return load(options).schema();
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return load(new CaseInsensitiveStringMap(properties));
  }

  private Table load(CaseInsensitiveStringMap options) {
    for (String one : new String[] {VERSION, TIMESTAMP}) {
      if (options.containsKey(one)) {
        throw LakeException.invalid(
            "OPTION_INVALID", one + ": a stream begins with startingVersion, startingTimestamp or startingTag");
      }
    }
    try {
      Table found = SparkInternals.catalog(extractCatalog(options)).loadTable(extractIdentifier(options), NEWEST, options);
      return found instanceof LakeTable table ? table.withoutCatalog() : found;
    } catch (NoSuchTableException error) {
      throw LakeException.invalid("TABLE_UNKNOWN", "there is no table " + text(names(options)) + ": create it first");
    }
  }

  private static String[] names(CaseInsensitiveStringMap options) {
    String path = options.getOrDefault(PATH, "");
    if (path.isEmpty()) throw unnamed();
    return Expressions.column(path).fieldNames();
  }

  private static String[] inCurrentNamespace(String table) {
    String current = SparkSession.active().catalog().currentDatabase();
    if (current.isEmpty()) return new String[] {table};
    String[] namespace = Expressions.column(current).fieldNames();
    String[] found = Arrays.copyOf(namespace, namespace.length + 1);
    found[namespace.length] = table;
    return found;
  }

  /** Whether the session has a lake of that name. */
  private static boolean isCatalog(String name) {
    return LakeCatalog.class.getName().equals(SparkSession.active().conf().get(CATALOG + name, ""));
  }

  private static String text(String[] names) {
    return String.join(".", names);
  }

  private static LakeException unnamed() {
    return LakeException.invalid(
        "NAME_INVALID", "name a table: load(\"lake.shop.orders\"), save(\"lake.shop.orders\")");
  }
}
