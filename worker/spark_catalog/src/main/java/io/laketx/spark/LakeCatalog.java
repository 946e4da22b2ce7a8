package io.laketx.spark;

import io.laketx.spark.changes.ChangesTable;
import io.laketx.spark.changes.LakeChangelog;
import io.laketx.spark.define.Alterations;
import io.laketx.spark.define.Namespaces;
import io.laketx.spark.define.NewTables;
import io.laketx.spark.define.ShownRefusal;
import io.laketx.spark.define.Tables;
import io.laketx.spark.define.Views;
import io.laketx.spark.metadata.MetadataKind;
import io.laketx.spark.metadata.MetadataTable;
import io.laketx.spark.procedures.Procedures;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.SparkInternals;
import io.laketx.spark.read.SqlTransaction;
import io.laketx.spark.service.ForeignWords;
import io.laketx.spark.service.LakeAddress;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import io.laketx.spark.write.Buckets;
import io.laketx.spark.write.Staying;
import io.laketx.spark.write.TakenNames;
import io.laketx.v1.GetTableRequest;
import io.laketx.v1.GetTableResponse;
import io.laketx.v1.ResolveVersionRequest;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NoSuchViewException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.ViewAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.Relation;
import org.apache.spark.sql.connector.catalog.RelationCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableContext;
import org.apache.spark.sql.connector.catalog.TableSummary;
import org.apache.spark.sql.connector.catalog.View;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A lake's tables in Spark SQL. It asks MetaService for everything and decides nothing; see {@link LakeAddress}. */
public final class LakeCatalog
    implements StagingTableCatalog, RelationCatalog, SupportsNamespaces, ProcedureCatalog, FunctionCatalog {
  private static final int LOOKS_MAX = 3;
  private static final Set<String> STATE =
      Stream.concat(ChangesTable.STATE.stream(), Stream.of(RememberedTarget.OPTION)).collect(Collectors.toSet());
  private static final String VERSION = "version"; // an option of a write: it sees the table at this one

  private String catalog;
  private Service service;
  private BranchSetting branch;
  private Namespaces namespaces;
  private Procedures procedures;
  private Views views;
  private final RecentLooks looks = new RecentLooks();

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    catalog = name;
    service = Service.of(LakeAddress.of(name, options));
    branch = new BranchSetting(options);
    namespaces = new Namespaces(service, branch);
    procedures = new Procedures(name, service, branch);
    views = new Views(name, service, branch);
  }

  @Override
  public String name() {
    return catalog;
  }

  // -- tables

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    return tablesOf(namespaces.load(namespace).getName(), namespace.length);
  }

  private Identifier[] tablesOf(String name, int depth) {
    List<Identifier> found = new ArrayList<>();
    for (String one : branch.tables(service, name)) {
      Identifier ident = TableNames.identifier(one);
      if (ident.namespace().length == depth) found.add(ident);
    }
    return found.toArray(Identifier[]::new);
  }

  @Override
  public TableSummary[] listTableSummaries(String[] namespace) throws NoSuchNamespaceException {
    return Arrays.stream(listTables(namespace))
        .map(one -> TableSummary.of(one, TableSummary.MANAGED_TABLE_TYPE))
        .toArray(TableSummary[]::new);
  }

  /** What SHOW TABLES asks for. No table is loaded. */
  @Override
  public TableSummary[] listRelationSummaries(String[] namespace) throws NoSuchNamespaceException {
    String name = namespaces.load(namespace).getName();
    List<TableSummary> found = new ArrayList<>();
    for (Identifier one : tablesOf(name, namespace.length)) {
      found.add(TableSummary.of(one, TableSummary.MANAGED_TABLE_TYPE));
    }
    for (Identifier one : views.list(name)) found.add(TableSummary.of(one, TableSummary.VIEW_TABLE_TYPE));
    return found.toArray(TableSummary[]::new);
  }

  @Override
  public org.apache.spark.sql.connector.catalog.Table loadTable(Identifier ident) throws NoSuchTableException {
    return load(ident, null);
  }

  /** A table, or else a view. */
  @Override
  public Relation loadRelation(Identifier ident) throws NoSuchTableException {
    try {
      return load(ident, null);
    } catch (NoSuchTableException none) {
      View found = views.find(ident);
      if (found == null) throw none;
      return found;
    }
  }

  /** A version's number, or the name of a tag. */
  @Override
  public org.apache.spark.sql.connector.catalog.Table loadTable(Identifier ident, String version)
      throws NoSuchTableException {
    GetTableRequest.Builder at = GetTableRequest.newBuilder();
    if (version.matches("[0-9]{1,18}")) at.setVersion(Long.parseLong(version));
    else at.setTag(version);
    return load(ident, at);
  }

  /** The newest version at a time, in microseconds. */
  @Override
  public org.apache.spark.sql.connector.catalog.Table loadTable(Identifier ident, long timestamp)
      throws NoSuchTableException {
    return load(ident, GetTableRequest.newBuilder().setTimeUs(timestamp));
  }

  /** With `readChangeFeed` the table's changes instead of its rows. */
  @Override
  public org.apache.spark.sql.connector.catalog.Table loadTable(
      Identifier ident, TableContext context, CaseInsensitiveStringMap options) throws NoSuchTableException {
    LakeTable remembered = remembered(ident, options.get(RememberedTarget.OPTION));
    if (remembered != null) return remembered;
    org.apache.spark.sql.connector.catalog.Table found = StagingTableCatalog.super.loadTable(ident, context, options);
    if (found instanceof ChangesTable changes) return changes.until(options);
    if (!(found instanceof LakeTable table)) return found;
    if (options.getBoolean(ChangesTable.FEED, false)) {
      table.snapshot().hold();
      return ChangesTable.of(found.name(), table.snapshot()).until(options);
    }
    return options.getBoolean(ChangesTable.VERSION_COUNTS, false) ? table.counted() : found;
  }

  @Override
  public Set<String> tableStateOptionKeys() {
    return STATE;
  }

  /** What `CHANGES FROM … TO …` reads. */
  @Override
  public Changelog loadChangelog(Identifier ident, ChangelogContext context, CaseInsensitiveStringMap options)
      throws NoSuchTableException {
    return LakeChangelog.of(catalog + "." + ident, service, get(ident), context);
  }

  /** `at` is null for the newest version. */
  private org.apache.spark.sql.connector.catalog.Table load(Identifier ident, GetTableRequest.Builder at)
      throws NoSuchTableException {
    CaseInsensitiveStringMap write = TableNames.optionsOf(ident);
    Snapshot found =
        at == null ? newest(ident, write.get(VERSION)) : named(nameOf(ident), TableNames.idOf(ident), at);
    if (found != null) return LakeTable.of(shown(ident, found.meta()), found, write);
    MetadataKind kind = MetadataKind.find(ident.name());
    boolean isChanges = ident.name().equalsIgnoreCase(ChangesTable.NAME);
    String foreign = ForeignWords.table(catalog + "." + String.join(".", ident.namespace()), ident.name());
    boolean isOfTable = kind != null || isChanges || !foreign.isEmpty();
    Snapshot parent = isOfTable ? parent(ident, at) : null;
    if (parent == null) throw new NoSuchTableException(ident);
    if (!foreign.isEmpty()) throw LakeException.invalid("TABLE_UNKNOWN", foreign);
    parent.hold();
    if (isChanges) return ChangesTable.of(catalog + "." + ident, parent);
    return new MetadataTable(catalog + "." + ident, kind, parent);
  }

  /** The newest version of a table, or the one that a transaction sees, or has `fixed`; null if there is no table. */
  private Snapshot newest(Identifier ident, String fixed) {
    boolean isFree = fixed == null && SqlTransaction.current() == null;
    Identifier whole = branch.on(ident);
    Table known = isFree && SparkInternals.isLookingAgain() ? looks.recent(whole) : null;
    if (known != null) return Snapshot.upcoming(service, known);
    Table newest = find(ident);
    looks.keep(whole, newest);
    if (newest == null) return null;
    return fixed == null ? seen(newest) : Snapshot.at(service, newest, Long.parseLong(fixed));
  }

  private Snapshot seen(Table newest) {
    SqlTransaction open = SqlTransaction.current();
    return open == null ? Snapshot.lookedAt(service, newest) : open.see(service, newest);
  }

  /** The version of a table that somebody has named; null if there is no table. */
  private Snapshot named(String name, String id, GetTableRequest.Builder at) {
    if (id == null && name == null) return null;
    GetTableRequest.Builder asked = at.clone();
    GetTableResponse found =
        Tables.findAt(service, (id == null ? asked.setName(name) : asked.setTableId(id)).build());
    if (found == null) return null;
    if (found.hasVersion()) return Snapshot.named(service, found.getTable(), found.getVersion());
    return Snapshot.at(service, found.getTable(), resolved(found.getTable(), at)).chosen();
  }

  /** By a service of the release before, which takes this for a call of its own. */
  private long resolved(Table table, GetTableRequest.Builder at) {
    ResolveVersionRequest.Builder asked = ResolveVersionRequest.newBuilder().setTableId(table.getTableId());
    if (at.hasVersion()) asked.setVersion(at.getVersion());
    else if (at.hasTag()) asked.setTag(at.getTag());
    else asked.setTimeUs(at.getTimeUs());
    ResolveVersionRequest request = asked.build();
    return service.ask(stubs -> stubs.reads().resolveVersion(request)).getVersion();
  }

  /** The table that a metadata table is of, which may be named without the current namespace; null if there is none. */
  private Snapshot parent(Identifier ident, GetTableRequest.Builder at) {
    String name = TableNames.ofParent(ident);
    Snapshot found = name == null ? null : snapshot(branch.on(name), at);
    String current = SparkInternals.currentNamespace(catalog);
    boolean isWhole = ident.namespace().length != 1 || current == null;
    return found != null || isWhole ? found : snapshot(branch.on(current + "." + name), at);
  }

  private Snapshot snapshot(String name, GetTableRequest.Builder at) {
    if (at != null) return named(name, null, at);
    Table newest = Tables.find(service, name);
    SqlTransaction open = SqlTransaction.current();
    if (newest == null || open == null) return newest == null ? null : Snapshot.newest(service, newest);
    return open.see(service, newest);
  }

  /** What an earlier statement has seen of a table under a definition; null where that isn't known. */
  private LakeTable remembered(Identifier ident, String definition) {
    Table known = definition == null || SqlTransaction.current() != null ? null : known(ident);
    if (known == null || !known.getDefinition().equals(definition)) return null;
    return new LakeTable(shown(ident, known), Snapshot.remembered(service, known));
  }

  /** The table as a statement has seen it; null where none has. */
  Table known(Identifier ident) {
    return looks.known(branch.on(ident));
  }

  /** The table's name to the service; null where no table can have that name. */
  private String nameOf(Identifier ident) {
    String name = TableNames.ofTable(ident);
    return name == null ? null : branch.on(name);
  }

  /** By its name, or by its id. */
  private Table find(Identifier ident) {
    String id = TableNames.idOf(ident);
    return id == null ? Tables.find(service, nameOf(ident)) : Tables.findById(service, id);
  }

  private String shown(Identifier ident, Table table) {
    return catalog + "." + (TableNames.idOf(ident) == null ? branch.on(ident).toString() : table.getName());
  }

  /** Metadata tables don't count: a table may be made in their place. */
  @Override
  public boolean tableExists(Identifier ident) {
    return Tables.find(service, nameOf(ident)) != null;
  }

  @Override
  public Set<TableCatalogCapability> capabilities() {
    return Set.of(
        TableCatalogCapability.SUPPORT_TABLE_CONSTRAINT, TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
  }

  @Override
  public org.apache.spark.sql.connector.catalog.Table createTable(Identifier ident, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    SqlTransaction.refuse("CREATE TABLE");
    String name = nameOf(ident);
    if (name == null) throw new NoSuchNamespaceException(ident.namespace());
    try {
      Table made = Tables.create(service, NewTables.of(name, info));
      return new LakeTable(catalog + "." + ident, Snapshot.lookedAt(service, made));
    } catch (LakeException error) {
      if (Views.isTaken(error)) throw new TableAlreadyExistsException(ident);
      if (error.reason().equals("NAMESPACE_UNKNOWN")) throw new NoSuchNamespaceException(ident.namespace());
      throw error;
    }
  }

  @Override
  public StagedTable stageCreate(Identifier ident, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    SqlTransaction.refuse("CREATE TABLE AS SELECT");
    String name = nameOf(ident);
    if (name == null) throw new NoSuchNamespaceException(ident.namespace());
    try {
      return StagedLakeTable.created(service, catalog + "." + ident, NewTables.of(name, info));
    } catch (LakeException error) {
      // made since Spark looked: the commit finds out
      if (TakenNames.stay(error)) return StagedLakeTable.late(service, catalog + "." + ident, NewTables.of(name, info));
      if (Views.isTaken(error)) throw new TableAlreadyExistsException(ident);
      if (error.reason().equals("NAMESPACE_UNKNOWN")) throw new NoSuchNamespaceException(ident.namespace());
      throw error;
    }
  }

  @Override
  public StagedTable stageReplace(Identifier ident, TableInfo info) throws NoSuchTableException {
    return replaced(ident, info, get(ident));
  }

  private StagedTable replaced(Identifier ident, TableInfo info, Table there) {
    SqlTransaction.refuse("REPLACE TABLE");
    Table wanted = NewTables.inPlaceOf(there, NewTables.of(there.getName(), info), info);
    return StagedLakeTable.replaced(service, catalog + "." + ident, wanted, there);
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier ident, TableInfo info) throws NoSuchNamespaceException {
    for (int attempt = 1; attempt <= LOOKS_MAX; attempt++) {
      try {
        Table there = Tables.find(service, nameOf(ident));
        return there == null ? stageCreate(ident, info) : replaced(ident, info, there);
      } catch (TableAlreadyExistsException race) {
        // made or dropped between the two calls: look again
      }
    }
    throw LakeException.invalid("TABLE_EXISTS", ident + " was created or dropped meanwhile: run the statement again");
  }

  /** Columns, key and partitions of the other table, and its properties. */
  @Override
  public org.apache.spark.sql.connector.catalog.Table createTableLike(
      Identifier ident, TableInfo info, org.apache.spark.sql.connector.catalog.Table like)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return createTable(ident, like instanceof LakeTable ? NewTables.like(info, like.properties()) : info);
  }

  @Override
  public org.apache.spark.sql.connector.catalog.Table alterTable(Identifier ident, TableChange... changes)
      throws NoSuchTableException {
    Table found = get(ident);
    try {
      SqlTransaction.refuse("ALTER TABLE");
      // Spark passes on no change for a type that the column has, or a column that IF EXISTS doesn't find
      Table altered = changes.length == 0 ? found : Tables.alter(service, found, Alterations.of(changes)).getTable();
      return new LakeTable(catalog + "." + ident, Snapshot.lookedAt(service, altered));
    } catch (LakeException refusal) {
      throw ShownRefusal.of(refusal);
    }
  }

  @Override
  public boolean dropTable(Identifier ident) {
    SqlTransaction.refuse("DROP TABLE");
    Table found = Tables.find(service, nameOf(ident));
    if (found != null) Tables.drop(service, found);
    return found != null;
  }

  @Override
  public boolean purgeTable(Identifier ident) {
    throw LakeException.invalid(
        "PURGE_REFUSED",
        "a dropped table can come back for as long as its property data.retain.hours says, then the purge takes its"
            + " files: leave PURGE out");
  }

  @Override
  public void renameTable(Identifier from, Identifier to) throws NoSuchTableException, TableAlreadyExistsException {
    SqlTransaction.refuse("ALTER TABLE");
    Identifier target = inThisCatalog(to);
    String name = newName(target);
    try {
      Tables.rename(service, get(from), name);
    } catch (LakeException error) {
      if (Views.isTaken(error)) throw new TableAlreadyExistsException(target);
      throw error;
    }
  }

  /** Spark passes on a new name as it was written, with the catalog too. */
  private Identifier inThisCatalog(Identifier to) {
    String[] parts = to.namespace();
    boolean isWhole = parts.length == 2 && parts[0].equalsIgnoreCase(catalog);
    return isWhole ? Identifier.of(new String[] {parts[1]}, to.name()) : to;
  }

  private String newName(Identifier target) {
    String name = nameOf(target);
    if (name != null) return name;
    throw LakeException.invalid("NAME_INVALID", target + ": a new name is name or namespace.name");
  }

  private Table get(Identifier ident) throws NoSuchTableException {
    Table found = Tables.find(service, nameOf(ident));
    if (found == null) throw new NoSuchTableException(ident);
    return found;
  }

  // -- views

  @Override
  public Identifier[] listViews(String[] namespace) throws NoSuchNamespaceException {
    return views.list(namespaces.load(namespace).getName());
  }

  @Override
  public View loadView(Identifier ident) throws NoSuchViewException {
    View found = views.find(ident);
    if (found == null) throw new NoSuchViewException(ident);
    return found;
  }

  @Override
  public boolean viewExists(Identifier ident) {
    return views.exists(ident);
  }

  @Override
  public View createView(Identifier ident, View view) throws ViewAlreadyExistsException, NoSuchNamespaceException {
    return views.create(ident, view);
  }

  @Override
  public View replaceView(Identifier ident, View view) throws NoSuchViewException {
    return views.replace(ident, view);
  }

  @Override
  public View createOrReplaceView(Identifier ident, View view)
      throws ViewAlreadyExistsException, NoSuchNamespaceException {
    return views.createOrReplace(ident, view);
  }

  @Override
  public boolean dropView(Identifier ident) {
    return views.drop(ident);
  }

  @Override
  public void renameView(Identifier from, Identifier to) throws NoSuchViewException, ViewAlreadyExistsException {
    views.rename(from, newName(inThisCatalog(to)));
  }

  // -- namespaces

  @Override
  public String[][] listNamespaces() {
    return namespaces.list();
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 0) return listNamespaces();
    namespaces.load(namespace);
    return new String[0][];
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    return namespaces.metadata(namespace);
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) throws NamespaceAlreadyExistsException {
    SqlTransaction.refuse("CREATE NAMESPACE");
    namespaces.create(namespace, metadata);
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw LakeException.invalid(
        "ALTERATION_INVALID", "a namespace keeps what it was made with: drop it while it is empty, and make it anew");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    SqlTransaction.refuse("DROP NAMESPACE");
    return namespaces.drop(namespace, cascade);
  }

  // -- procedures

  @Override
  public UnboundProcedure loadProcedure(Identifier ident) {
    try {
      return procedures.get(ident);
    } catch (LakeException refusal) {
      throw ShownRefusal.of(refusal);
    }
  }

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    return procedures.list(namespace);
  }

  // -- functions, by which Spark spreads rows that are written

  @Override
  public Identifier[] listFunctions(String[] namespace) {
    return new Identifier[0];
  }

  @Override
  public UnboundFunction loadFunction(Identifier ident) throws NoSuchFunctionException {
    UnboundFunction found = Buckets.function(ident.name());
    if (found == null) found = Staying.function(ident.name());
    if (found == null || ident.namespace().length > 0) throw new NoSuchFunctionException(ident);
    return found;
  }
}
