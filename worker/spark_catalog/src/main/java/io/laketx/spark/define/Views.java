package io.laketx.spark.define;

import io.laketx.spark.BranchSetting;
import io.laketx.spark.TableNames;
import io.laketx.spark.read.SparkInternals;
import io.laketx.spark.read.SqlTransaction;
import io.laketx.spark.service.Ids;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import io.laketx.v1.CreateMode;
import io.laketx.v1.DropViewRequest;
import io.laketx.v1.GetViewRequest;
import io.laketx.v1.ListViewsRequest;
import io.laketx.v1.ListViewsResponse;
import io.laketx.v1.PutViewRequest;
import io.laketx.v1.RenameViewRequest;
import io.laketx.v1.ViewColumn;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchViewException;
import org.apache.spark.sql.catalyst.analysis.ViewAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.View;

/** Views: queries that the service keeps, and that Spark runs where a statement names them. */
public final class Views {
  private static final int PAGE = 1_000;

  private final String catalog;
  private final Service service;
  private final BranchSetting branch;

  public Views(String catalog, Service service, BranchSetting branch) {
    this.catalog = catalog;
    this.service = service;
    this.branch = branch;
  }

  public Identifier[] list(String namespace) {
    ListViewsRequest.Builder request =
        ListViewsRequest.newBuilder().setPageSize(PAGE).setNamespace(namespace).setBranch(branch.current());
    List<Identifier> found = new ArrayList<>();
    do {
      ListViewsRequest page = request.build();
      ListViewsResponse answer = service.ask(stubs -> stubs.catalog().listViews(page));
      for (io.laketx.v1.View one : answer.getViewsList()) {
        Identifier ident = TableNames.identifier(TableNames.offBranch(one.getName()));
        if (ident.namespace().length == (namespace.isEmpty() ? 0 : 1)) found.add(ident);
      }
      request.setPageToken(answer.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return found.toArray(Identifier[]::new);
  }

  /** Null where there is none. */
  public View find(Identifier ident) {
    io.laketx.v1.View found = load(ident);
    if (found == null) return null;
    branch.checkReads(found.getName());
    return ofWire(found);
  }

  public boolean exists(Identifier ident) {
    return load(ident) != null;
  }

  private io.laketx.v1.View load(Identifier ident) {
    String name = nameOf(ident);
    if (name == null) return null;
    GetViewRequest request = GetViewRequest.newBuilder().setName(name).build();
    try {
      return service.ask(stubs -> stubs.catalog().getView(request)).getView();
    } catch (LakeException error) {
      if (isNone(error)) return null;
      throw error;
    }
  }

  /** With its branch; null where no view can have that name. */
  private String nameOf(Identifier ident) {
    String name = TableNames.ofTable(ident);
    return name == null ? null : branch.on(name);
  }

  public View create(Identifier ident, View wanted) throws ViewAlreadyExistsException, NoSuchNamespaceException {
    return put(ident, PutViewRequest.newBuilder().setView(onWire(ident, wanted)));
  }

  public View createOrReplace(Identifier ident, View wanted)
      throws ViewAlreadyExistsException, NoSuchNamespaceException {
    PutViewRequest.Builder request = PutViewRequest.newBuilder().setView(onWire(ident, wanted));
    return put(ident, request.setMode(CreateMode.CREATE_MODE_OR_REPLACE));
  }

  public View replace(Identifier ident, View wanted) throws NoSuchViewException {
    PutViewRequest.Builder request = PutViewRequest.newBuilder().setView(onWire(ident, wanted)).setMustExist(true);
    try {
      return put(ident, request.setMode(CreateMode.CREATE_MODE_OR_REPLACE));
    } catch (LakeException error) {
      if (isNone(error)) throw new NoSuchViewException(ident);
      throw error;
    } catch (ViewAlreadyExistsException | NoSuchNamespaceException error) {
      throw new NoSuchViewException(ident);
    }
  }

  private View put(Identifier ident, PutViewRequest.Builder wanted)
      throws ViewAlreadyExistsException, NoSuchNamespaceException {
    SqlTransaction.refuse("CREATE VIEW");
    if (nameOf(ident) == null) throw new NoSuchNamespaceException(ident.namespace());
    PutViewRequest request = wanted.setRequestId(Ids.uuid7()).setPrincipal(service.principal()).build();
    try {
      return ofWire(service.ask(stubs -> stubs.catalog().putView(request)).getView());
    } catch (LakeException error) {
      if (isTaken(error)) throw new ViewAlreadyExistsException(ident);
      if (error.reason().equals("NAMESPACE_UNKNOWN")) throw new NoSuchNamespaceException(ident.namespace());
      throw error;
    }
  }

  /** Whether there was one. */
  public boolean drop(Identifier ident) {
    SqlTransaction.refuse("DROP VIEW");
    String name = nameOf(ident);
    if (name == null) return false;
    DropViewRequest request = DropViewRequest.newBuilder().setName(name).build();
    try {
      return service.ask(stubs -> stubs.catalog().dropView(request)).getDropped();
    } catch (LakeException error) {
      if (isNone(error)) return false;
      throw error;
    }
  }

  public void rename(Identifier from, String to) throws NoSuchViewException, ViewAlreadyExistsException {
    SqlTransaction.refuse("ALTER VIEW");
    String name = nameOf(from);
    if (name == null) throw new NoSuchViewException(from);
    RenameViewRequest request = RenameViewRequest.newBuilder().setName(name).setNewName(to).build();
    try {
      service.ask(stubs -> stubs.catalog().renameView(request));
    } catch (LakeException error) {
      if (isTaken(error)) throw new ViewAlreadyExistsException(TableNames.identifier(to));
      if (error.reason().equals("VIEW_UNKNOWN")) throw new NoSuchViewException(from);
      throw error;
    }
  }

  /** Whether a name is one that a table or a view has. */
  public static boolean isTaken(LakeException error) {
    return error.reason().equals("TABLE_EXISTS") || error.reason().equals("VIEW_EXISTS");
  }

  private static boolean isNone(LakeException error) {
    return error.reason().equals("VIEW_UNKNOWN") || error.reason().equals("NAME_INVALID");
  }

  // -- on the wire

  /** The lake's own name is left out: another session may know it by another. */
  private io.laketx.v1.View onWire(Identifier ident, View wanted) {
    Map<String, String> properties = new HashMap<>(wanted.properties());
    String comment = properties.remove(TableCatalog.PROP_COMMENT);
    io.laketx.v1.View.Builder found =
        io.laketx.v1.View.newBuilder()
            .setName(nameOf(ident) == null ? ident.toString() : nameOf(ident))
            .setText(wanted.queryText())
            .putAllProperties(properties)
            .setSchemaMode(wanted.schemaMode() == null ? "" : wanted.schemaMode());
    if (comment != null) found.setComment(comment);
    if (wanted.queryColumnNames() != null) found.addAllQueryColumns(List.of(wanted.queryColumnNames()));
    if (wanted.sqlConfigs() != null) found.putAllSettings(wanted.sqlConfigs());
    found.removeSettings(BranchSetting.SESSION); // it is of who reads the view
    String current = wanted.currentCatalog();
    if (current != null && !current.equalsIgnoreCase(catalog)) found.setCatalog(current);
    if (wanted.currentNamespace() != null) found.addAllNamespace(List.of(wanted.currentNamespace()));
    for (Column one : wanted.columns()) {
      ViewColumn.Builder column =
          ViewColumn.newBuilder().setName(one.name()).setType(one.dataType().sql()).setNullable(one.nullable());
      if (one.comment() != null) column.setComment(one.comment());
      found.addColumns(column);
    }
    return found.build();
  }

  /** Spark reads its tables under the view's own settings, which say the session's branch for that. */
  private View ofWire(io.laketx.v1.View kept) {
    Map<String, String> settings = new HashMap<>(kept.getSettingsMap());
    settings.putAll(branch.ofViews());
    Column[] columns =
        kept.getColumnsList().stream()
            .map(
                one ->
                    Column.create(
                        one.getName(),
                        SparkInternals.type(one.getType()),
                        one.getNullable(),
                        one.getComment().isEmpty() ? null : one.getComment(),
                        null))
            .toArray(Column[]::new);
    View.Builder found =
        new View.Builder()
            .withQueryText(kept.getText())
            .withCurrentCatalog(kept.getCatalog().isEmpty() ? catalog : kept.getCatalog())
            .withCurrentNamespace(kept.getNamespaceList().toArray(String[]::new))
            .withSqlConfigs(settings)
            .withSchemaMode(kept.getSchemaMode().isEmpty() ? null : kept.getSchemaMode())
            .withQueryColumnNames(kept.getQueryColumnsList().toArray(String[]::new));
    found.withColumns(columns);
    found.withProperties(kept.getPropertiesMap());
    if (!kept.getComment().isEmpty()) found.withComment(kept.getComment());
    return found.build();
  }
}
