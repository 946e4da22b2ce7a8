package io.laketx.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import scala.jdk.javaapi.CollectionConverters;

/** The table that a statement names, as Spark finds it: a catalog, and the name there. */
record NamedTable(String catalog, String name, boolean isOfLake) {
  private static final String CATALOGS = "spark.sql.catalog.";
  private static final String CATALOG = "lake"; // as sessions call it where nothing else is said

  static NamedTable of(SparkSession session, String written) {
    CatalogManager catalogs = session.sessionState().catalogManager();
    List<String> parts = new ArrayList<>(List.of(written.replace("`", "").split("\\.")));
    String catalog = catalogs.currentCatalog().name();
    if (parts.size() > 1 && catalogs.isCatalogRegistered(parts.get(0))) catalog = parts.remove(0);
    else if (parts.size() == 1) parts.addAll(0, List.of(catalogs.currentNamespace()));
    if (catalogs.catalog(catalog) instanceof LakeCatalog) return new NamedTable(catalog, String.join(".", parts), true);
    return new NamedTable(lakeOf(session), written.replace("`", ""), false);
  }

  /** The namespace of the catalog's procedures. */
  String system() {
    return (catalog.matches("\\w+") ? catalog : "`" + catalog + "`") + ".system";
  }

  private static String lakeOf(SparkSession session) {
    return CollectionConverters.asJava(session.conf().getAll()).entrySet().stream()
        .filter(one -> one.getValue().equals(LakeCatalog.class.getName()) && one.getKey().startsWith(CATALOGS))
        .map(Map.Entry::getKey)
        .map(key -> key.substring(CATALOGS.length()))
        .findFirst()
        .orElse(CATALOG);
  }
}
