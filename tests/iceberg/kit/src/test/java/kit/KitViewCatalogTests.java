package kit;

import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.view.ViewCatalogTests;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** Tests of views. */
public class KitViewCatalogTests extends ViewCatalogTests<RESTCatalog> {
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
  protected Catalog tableCatalog() {
    return catalog;
  }

  @Override
  protected boolean requiresNamespaceCreate() {
    return true;
  }

  @Override
  protected boolean overridesRequestedLocation() {
    return true;
  }
}
