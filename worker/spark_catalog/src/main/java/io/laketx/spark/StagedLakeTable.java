package io.laketx.spark;

import io.laketx.spark.define.Tables;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import io.laketx.spark.write.DefiningWriteBuilder;
import io.laketx.spark.write.NewDefinition;
import io.laketx.v1.CreateMode;
import io.laketx.v1.GetTableRequest;
import io.laketx.v1.Table;
import java.util.Set;
import java.util.UUID;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/**
 * A table that a statement makes or redefines. Its rows and its definition come with one commit; before that nobody sees
 * any of it.
 *
 * <p>A new table has the name `_new_…` until that commit. No list shows it, and the service drops it when the transaction
 * that fills it ends without one.
 */
final class StagedLakeTable implements StagedTable, SupportsWrite {
  private static final String UNBORN = "_new_";

  private final Service service;
  private final String shown;
  private final Table wanted;
  private final Table there;
  private Table made;
  private boolean isWritten;

  private StagedLakeTable(Service service, String shown, Table wanted, Table there) {
    this.service = service;
    this.shown = shown;
    this.wanted = wanted;
    this.there = there;
  }

  /** What the service refuses is refused here. */
  static StagedLakeTable created(Service service, String shown, Table wanted) {
    String name = Tables.wouldBe(service, wanted, CreateMode.CREATE_MODE_UNSPECIFIED).getName();
    return new StagedLakeTable(service, shown, wanted.toBuilder().setName(name).build(), null);
  }

  /** Another statement has made the table meanwhile: nothing is looked at before the commit. */
  static StagedLakeTable late(Service service, String shown, Table wanted) {
    return new StagedLakeTable(service, shown, wanted, null);
  }

  static StagedLakeTable replaced(Service service, String shown, Table wanted, Table there) {
    return new StagedLakeTable(service, shown, wanted, there);
  }

  @Override
  public String name() {
    return shown;
  }

  @Override
  @SuppressWarnings("deprecation") // the columns come from here
  public StructType schema() {
    return WireTypes.schemaOf(wanted.getColumnsList());
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(TableCapability.BATCH_WRITE, TableCapability.TRUNCATE);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    isWritten = true;
    if (there != null) {
      Table after = Tables.wouldBe(service, wanted, CreateMode.CREATE_MODE_OR_REPLACE);
      Snapshot snapshot = Snapshot.lookedAt(service, there).under(after);
      Table told = wanted.toBuilder().setLastColumnId(after.getLastColumnId()).build(); // its files have these ids
      return new DefiningWriteBuilder(snapshot, NewDefinition.of(told, there), info);
    }
    String name = wanted.getName();
    String unborn = name.substring(0, name.lastIndexOf('.') + 1) + UNBORN + UUID.randomUUID().toString().replace("-", "");
    made = Tables.create(service, wanted.toBuilder().setName(unborn).build());
    return new DefiningWriteBuilder(Snapshot.lookedAt(service, made), NewDefinition.named(name, made), info);
  }

  /** Rows have brought it with them; without any it is made here. */
  @Override
  public void commitStagedChanges() {
    if (isWritten) return;
    if (there != null) Tables.replace(service, wanted);
    else Tables.create(service, wanted);
  }

  /** The transaction has taken back all else; one that may have committed is left alone. */
  @Override
  public void abortStagedChanges() {
    if (made == null) return;
    GetTableRequest request = GetTableRequest.newBuilder().setTableId(made.getTableId()).build();
    try {
      Table now = service.ask(stubs -> stubs.catalog().getTable(request)).getTable();
      if (now.getName().equals(made.getName())) Tables.drop(service, made);
    } catch (LakeException gone) {
      if (!Tables.cannotBe(gone) && !gone.reason().equals("TABLE_DROPPED")) throw gone;
    }
  }
}
