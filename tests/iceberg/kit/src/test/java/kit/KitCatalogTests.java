package kit;

import org.apache.iceberg.catalog.CatalogTests;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.rest.RESTCatalog;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** Tests of tables and namespaces. */
public class KitCatalogTests extends CatalogTests<RESTCatalog> {
  private RESTCatalog catalog;

  @BeforeEach
  public void before() {
    catalog = Lakes.open("kit", Map.of());
    Lakes.empty(catalog);
  }

  @AfterEach
  public void after() throws Exception {
    Lakes.empty(catalog);
    catalog.close();
  }

  @Override
  protected RESTCatalog catalog() {
    return catalog;
  }

  @Override
  protected RESTCatalog initCatalog(String name, Map<String, String> properties) {
    return Lakes.open(name, properties);
  }

  @Override
  protected boolean requiresNamespaceCreate() {
    return true;
  }

  @Override
  protected boolean supportsNestedNamespaces() {
    return false;
  }

  @Override
  protected boolean supportsServerSideRetry() {
    return true;
  }

  @Override
  protected boolean overridesRequestedLocation() {
    return true;
  }

  @Override
  protected boolean supportsNamesWithSlashes() {
    return false;
  }

  @Override
  protected boolean supportsNamesWithDot() {
    return false;
  }

  @Override
  protected boolean supportsEmptyNamespace() {
    return false;
  }
}
