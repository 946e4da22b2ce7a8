package io.laketx.spark;

import io.laketx.spark.changes.TableStream;
import io.laketx.spark.define.Alterations;
import io.laketx.spark.define.NewTables;
import io.laketx.spark.define.Tables;
import io.laketx.spark.read.LakeScanBuilder;
import io.laketx.spark.read.LivePartitions;
import io.laketx.spark.read.MetadataColumns;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.SparkInternals;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.write.LakeWriteBuilder;
import io.laketx.spark.write.PartitionCondition;
import io.laketx.spark.write.RowChanges;
import io.laketx.spark.write.TablePartitions;
import io.laketx.spark.write.Truncation;
import io.laketx.spark.write.WriteOptions;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.ColumnDefaultValue;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsAtomicPartitionManagement;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsSchemaEvolution;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A version of a table, as a statement sees it. */
public final class LakeTable
    implements SupportsRead,
        SupportsWrite,
        SupportsMetadataColumns,
        SupportsRowLevelOperations,
        SupportsDeleteV2,
        SupportsAtomicPartitionManagement,
        SupportsSchemaEvolution {
  private static final Set<TableCapability> CAPABILITIES =
      Set.of(
          TableCapability.BATCH_READ,
          TableCapability.MICRO_BATCH_READ,
          TableCapability.BATCH_WRITE,
          TableCapability.STREAMING_WRITE,
          TableCapability.TRUNCATE,
          TableCapability.OVERWRITE_BY_FILTER,
          TableCapability.OVERWRITE_DYNAMIC,
          TableCapability.AUTOMATIC_SCHEMA_EVOLUTION);

  private final String name;
  private final Snapshot snapshot;
  private final StructType schema;
  private final boolean hasCatalog;
  private final CaseInsensitiveStringMap write;

  LakeTable(String name, Snapshot snapshot) {
    this(name, snapshot, true, CaseInsensitiveStringMap.empty());
  }

  private LakeTable(String name, Snapshot snapshot, boolean hasCatalog, CaseInsensitiveStringMap write) {
    this.name = name;
    this.snapshot = snapshot;
    this.hasCatalog = hasCatalog;
    this.write = write;
    schema = WireTypes.schemaOf(snapshot.meta().getColumnsList());
  }

  /** `write`: options of a write that the table's name brought with it. */
  static LakeTable of(String name, Snapshot snapshot, CaseInsensitiveStringMap write) {
    return new LakeTable(name, snapshot, true, write);
  }

  /** The same, for streams by the format alone: Spark finds no function for them. */
  LakeTable withoutCatalog() {
    return new LakeTable(name, snapshot, false, write);
  }

  /** The same, where the version was the newest one when the caller looked: what writes these rows has read it. */
  LakeTable counted() {
    return new LakeTable(name, snapshot.counted(), hasCatalog, write);
  }

  public Snapshot snapshot() {
    return snapshot;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String id() {
    return snapshot.tableId();
  }

  /** Spark reads a table with a version anew where a plan runs later: not one that a transaction has fixed. */
  @Override
  public String version() {
    return snapshot.transaction() == null ? Long.toString(snapshot.version()) : null;
  }

  @Override
  @SuppressWarnings("deprecation") // what Spark shows and resolves comes from here, comments included
  public StructType schema() {
    return schema;
  }

  /** With their defaults, which reads must not see: Spark would show them in rows that are older. */
  @Override
  public Column[] columns() {
    Column[] found = SupportsRead.super.columns();
    for (int at = 0; at < found.length; at++) {
      String sql = snapshot.meta().getColumns(at).getDefaultSql();
      if (sql.isEmpty()) continue;
      ColumnDefaultValue written = new ColumnDefaultValue(sql, new LiteralValue<>(null, found[at].dataType()));
      found[at] = Column.builderFrom(found[at]).defaultValue(written).build();
    }
    return found;
  }

  @Override
  public Transform[] partitioning() {
    return snapshot.meta().getPartitionColumnsList().stream()
        .map(column -> Expressions.identity(quoted(column)))
        .toArray(Transform[]::new);
  }

  @Override
  public Constraint[] constraints() {
    if (!snapshot.isKeyed()) return new Constraint[0];
    NamedReference[] key =
        snapshot.meta().getPrimaryKeyList().stream()
            .map(column -> Expressions.column(quoted(column)))
            .toArray(NamedReference[]::new);
    return new Constraint[] {Constraint.primaryKey("primary_key", key).enforced(false).rely(true).build()};
  }

  @Override
  public Map<String, String> properties() {
    Map<String, String> found = new HashMap<>(snapshot.meta().getPropertiesMap());
    found.put(TableCatalog.PROP_PROVIDER, "laketx");
    found.put(NewTables.PROFILE, snapshot.meta().getProfile());
    if (snapshot.isKeyed()) found.put(NewTables.BUCKETS, Integer.toString(snapshot.meta().getBuckets()));
    if (!snapshot.meta().getComment().isEmpty()) found.put(TableCatalog.PROP_COMMENT, snapshot.meta().getComment());
    return found;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return CAPABILITIES;
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    return MetadataColumns.of(snapshot);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    Snapshot read = SparkInternals.isInStream() ? snapshot.renewed() : snapshot;
    return LakeScanBuilder.of(
        name,
        read,
        schema,
        (required, checkpoint) -> {
          if (read != snapshot) read.letGo();
          snapshot.hold();
          return TableStream.ofRows(name, snapshot, schema, required, options, checkpoint);
        });
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    if (!hasCatalog && snapshot.isKeyed()) {
      throw LakeException.invalid(
          "SINK_NEEDS_CATALOG",
          "rows for " + name + ", which has a key, are spread by a function of the catalog, and Spark gives a format none:"
              + " say writeStream.toTable(\"" + name + "\") in place of start()");
    }
    return LakeWriteBuilder.of(snapshot, WriteOptions.named(info, write));
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    return () -> new RowChanges(name, snapshot, schema, info.command(), write);
  }

  // -- whole partitions, and everything

  @Override
  public boolean truncateTable() {
    Truncation.run(snapshot, WriteOptions.ofStatement(write));
    return true;
  }

  @Override
  public boolean canDeleteWhere(Predicate[] predicates) {
    return PartitionCondition.of(predicates, snapshot.meta()) != null;
  }

  @Override
  public void deleteWhere(Predicate[] predicates) {
    Truncation.run(snapshot, PartitionCondition.of(predicates, snapshot.meta()), WriteOptions.ofStatement(write));
  }

  @Override
  public StructType partitionSchema() {
    return LivePartitions.schema(snapshot.meta());
  }

  @Override
  public InternalRow[] listPartitionIdentifiers(String[] names, InternalRow ident) {
    return TablePartitions.list(snapshot, names, ident);
  }

  @Override
  public boolean dropPartitions(InternalRow[] idents) {
    return truncatePartitions(idents);
  }

  @Override
  public boolean truncatePartition(InternalRow ident) {
    return truncatePartitions(new InternalRow[] {ident});
  }

  @Override
  public boolean truncatePartitions(InternalRow[] idents) {
    TablePartitions.truncate(snapshot, idents);
    return true;
  }

  @Override
  public Map<String, String> loadPartitionMetadata(InternalRow ident) {
    return Map.of();
  }

  @Override
  public void createPartitions(InternalRow[] idents, Map<String, String>[] properties) {
    throw LakeException.invalid("PARTITION_INVALID", "a partition comes with its first row: insert rows");
  }

  @Override
  public void replacePartitionMetadata(InternalRow ident, Map<String, String> properties) {
    throw LakeException.invalid("PARTITION_INVALID", "a partition has no properties, only its values");
  }

  // -- columns that rows bring with them

  @Override
  public boolean supportsColumnChange(TableChange.ColumnChange change) {
    return Tables.mayAlter(snapshot.service(), snapshot.meta(), Alterations.of(change));
  }

  private static String quoted(String column) {
    return "`" + column.replace("`", "``") + "`";
  }
}
