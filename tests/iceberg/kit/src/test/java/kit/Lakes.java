package kit;

import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.rest.RESTCatalog;

/** The catalog that runs, and its state between tests. */
final class Lakes {
  private static final String DEFAULT = "default"; // shows the tables that are in no namespace

  private Lakes() {}

  static RESTCatalog open(String name, Map<String, String> properties) {
    Map<String, String> given = new HashMap<>();
    given.put("uri", System.getenv("KIT_URI"));
    given.put("warehouse", "v2");
    given.put("io-impl", "org.apache.iceberg.hadoop.HadoopFileIO");
    given.putAll(properties);
    RESTCatalog catalog = new RESTCatalog();
    catalog.setConf(new org.apache.hadoop.conf.Configuration());
    catalog.initialize(name, given);
    return catalog;
  }

  static void empty(RESTCatalog catalog) {
    for (Namespace namespace : catalog.listNamespaces()) {
      catalog.listTables(namespace).forEach(catalog::dropTable);
      catalog.listViews(namespace).forEach(catalog::dropView);
      if (!namespace.toString().equals(DEFAULT)) {
        catalog.dropNamespace(namespace);
      }
    }
  }
}
