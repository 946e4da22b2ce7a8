package io.laketx.spark;

import io.laketx.spark.metadata.MetadataKind;
import io.laketx.spark.metadata.MetadataTable;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.LakeAddress;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.RefusalKind;
import io.laketx.spark.service.Service;
import io.laketx.v1.GetNamespaceRequest;
import io.laketx.v1.GetTableRequest;
import io.laketx.v1.ListNamespacesRequest;
import io.laketx.v1.ListNamespacesResponse;
import io.laketx.v1.ListTablesRequest;
import io.laketx.v1.ListTablesResponse;
import io.laketx.v1.Namespace;
import io.laketx.v1.ResolveVersionRequest;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A lake's tables in Spark SQL. It asks MetaService for everything and decides nothing; see {@link LakeAddress}. */
public final class LakeCatalog implements TableCatalog, SupportsNamespaces {
  private static final int PAGE = 1_000;

  private String catalog;
  private Service service;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    catalog = name;
    service = Service.of(LakeAddress.of(name, options));
  }

  @Override
  public String name() {
    return catalog;
  }

  // -- tables

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length > 1) throw new NoSuchNamespaceException(namespace);
    if (namespace.length == 1) loadNamespace(namespace);
    ListTablesRequest.Builder request = ListTablesRequest.newBuilder().setPageSize(PAGE);
    if (namespace.length == 1) request.setNamespace(namespace[0]);
    List<Identifier> found = new ArrayList<>();
    do {
      ListTablesRequest page = request.build();
      ListTablesResponse answer = service.ask(stubs -> stubs.catalog().listTables(page));
      for (Table one : answer.getTablesList()) {
        Identifier ident = TableNames.identifier(one.getName());
        if (ident.namespace().length == namespace.length) found.add(ident);
      }
      request.setPageToken(answer.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return found.toArray(Identifier[]::new);
  }

  @Override
  public org.apache.spark.sql.connector.catalog.Table loadTable(Identifier ident) throws NoSuchTableException {
    return load(ident, null);
  }

  /** A version's number, or the name of a tag. */
  @Override
  public org.apache.spark.sql.connector.catalog.Table loadTable(Identifier ident, String version)
      throws NoSuchTableException {
    ResolveVersionRequest.Builder at = ResolveVersionRequest.newBuilder();
    if (version.matches("[0-9]{1,18}")) at.setVersion(Long.parseLong(version));
    else at.setTag(version);
    return load(ident, at);
  }

  /** The newest version at a time, in microseconds. */
  @Override
  public org.apache.spark.sql.connector.catalog.Table loadTable(Identifier ident, long timestamp)
      throws NoSuchTableException {
    return load(ident, ResolveVersionRequest.newBuilder().setTimeUs(timestamp));
  }

  /** `at` is null for the newest version. */
  private org.apache.spark.sql.connector.catalog.Table load(Identifier ident, ResolveVersionRequest.Builder at)
      throws NoSuchTableException {
    Table newest = find(TableNames.ofTable(ident));
    if (newest != null) return new LakeTable(catalog + "." + ident, snapshot(newest, at));
    MetadataKind kind = MetadataKind.find(ident.name());
    Table parent = kind == null ? null : find(TableNames.ofParent(ident));
    if (parent == null) throw new NoSuchTableException(ident);
    return new MetadataTable(catalog + "." + ident, kind, snapshot(parent, at));
  }

  private Snapshot snapshot(Table newest, ResolveVersionRequest.Builder at) {
    if (at == null) return Snapshot.newest(service, newest);
    ResolveVersionRequest request = at.setTableId(newest.getTableId()).build();
    long version = service.ask(stubs -> stubs.reads().resolveVersion(request)).getVersion();
    return Snapshot.at(service, newest, version);
  }

  /** The table of that name; null where there is none, or none can be. */
  private Table find(String name) {
    if (name == null) return null;
    try {
      GetTableRequest request = GetTableRequest.newBuilder().setName(name).build();
      return service.ask(stubs -> stubs.catalog().getTable(request)).getTable();
    } catch (LakeException error) {
      if (cannotBe(error)) return null;
      throw error;
    }
  }

  /** Whether there is nothing of that name: neither now, nor ever, by its letters. */
  private static boolean cannotBe(LakeException error) {
    return error.reason().equals("TABLE_UNKNOWN")
        || error.reason().equals("NAMESPACE_UNKNOWN")
        || error.kind() == RefusalKind.INVALID;
  }

  @Override
  public org.apache.spark.sql.connector.catalog.Table alterTable(Identifier ident, TableChange... changes) {
    throw notHere("ALTER TABLE", "Table.alter in Python, or laketx table alter");
  }

  @Override
  public boolean dropTable(Identifier ident) {
    throw notHere("DROP TABLE", "Lake.drop_table in Python, or laketx table drop");
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw notHere("RENAME", "Lake.rename_table in Python, or laketx table rename");
  }

  private static UnsupportedOperationException notHere(String what, String instead) {
    return new UnsupportedOperationException(what + " is not known to this catalog: use " + instead);
  }

  // -- namespaces

  @Override
  public String[][] listNamespaces() {
    ListNamespacesRequest.Builder request = ListNamespacesRequest.newBuilder().setPageSize(PAGE);
    List<String[]> found = new ArrayList<>();
    do {
      ListNamespacesRequest page = request.build();
      ListNamespacesResponse answer = service.ask(stubs -> stubs.catalog().listNamespaces(page));
      answer.getNamesList().forEach(name -> found.add(new String[] {name}));
      request.setPageToken(answer.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return found.toArray(String[][]::new);
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 0) return listNamespaces();
    loadNamespace(namespace);
    return new String[0][];
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    return new HashMap<>(loadNamespace(namespace).getPropertiesMap());
  }

  private Namespace loadNamespace(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 0) return Namespace.getDefaultInstance(); // tables may be in none
    if (namespace.length > 1) throw new NoSuchNamespaceException(namespace);
    try {
      GetNamespaceRequest request = GetNamespaceRequest.newBuilder().setName(namespace[0]).build();
      return service.ask(stubs -> stubs.catalog().getNamespace(request)).getNamespace();
    } catch (LakeException error) {
      if (cannotBe(error)) throw new NoSuchNamespaceException(namespace);
      throw error;
    }
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
    throw notHere("CREATE NAMESPACE", "laketx namespace create");
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw notHere("ALTER NAMESPACE", "laketx namespace");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw notHere("DROP NAMESPACE", "laketx namespace drop");
  }
}
