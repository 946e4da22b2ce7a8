package io.laketx.spark.read;

import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Pins;
import io.laketx.spark.service.Service;
import io.laketx.v1.Column;
import io.laketx.v1.DataFile;
import io.laketx.v1.GetTableRequest;
import io.laketx.v1.ListSchemasRequest;
import io.laketx.v1.ListSchemasResponse;
import io.laketx.v1.SchemaVersion;
import io.laketx.v1.Table;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A version of a table, under the schema of that version. Its files stay for as long as this can be reached. */
public final class Snapshot {
  private static final int LOOKS_MAX = 8;
  private final Service service;
  private final Table meta;
  private final long version;
  private final Pins.Pin pin; // null: the caller keeps it
  private final SqlTransaction transaction;
  private final boolean isChosen;
  private Map<Long, List<Column>> schemas;

  private Snapshot(
      Service service, Table meta, long version, Pins.Pin pin, SqlTransaction transaction, boolean isChosen) {
    this.service = service;
    this.meta = meta;
    this.version = version;
    this.pin = pin;
    this.transaction = transaction;
    this.isChosen = isChosen;
  }

  /** The newest version, as of a look at the table; it is looked at again where that one is retired before it is pinned. */
  public static Snapshot newest(Service service, Table meta) {
    Table seen = meta;
    for (int look = 1; ; look++) {
      try {
        return pinned(service, seen, seen.getHeadVersion());
      } catch (LakeException error) {
        if (!error.reason().equals("VERSION_RETIRED") || look == LOOKS_MAX) throw error;
        GetTableRequest request = GetTableRequest.newBuilder().setTableId(meta.getTableId()).build();
        seen = service.ask(stubs -> stubs.catalog().getTable(request)).getTable();
      }
    }
  }

  /** An older one, under the schema of then. */
  public static Snapshot at(Service service, Table newest, long version) {
    if (version == newest.getHeadVersion()) return newest(service, newest);
    GetTableRequest request =
        GetTableRequest.newBuilder().setTableId(newest.getTableId()).setVersion(version).build();
    return pinned(service, service.ask(stubs -> stubs.catalog().getTable(request)).getTable(), version);
  }

  /**
   * The newest version by now, for the batches of a stream: Spark analyses its tables once, when the query starts. The same
   * where somebody keeps this one, or has named it, or where the columns have changed.
   */
  public Snapshot renewed() {
    if (isChosen || pin == null || transaction != null) return this;
    GetTableRequest request = GetTableRequest.newBuilder().setTableId(meta.getTableId()).build();
    Table now = service.ask(stubs -> stubs.catalog().getTable(request)).getTable();
    boolean isSame = now.getHeadVersion() == version || now.getSchemaVersion() != meta.getSchemaVersion();
    return isSame ? this : newest(service, now);
  }

  /** A version that the caller keeps readable, under the schema of that version. */
  public static Snapshot kept(Service service, Table meta, long version) {
    return new Snapshot(service, meta, version, null, null, false);
  }

  /** The same version, written under another definition than it has. */
  public Snapshot under(Table definition) {
    return new Snapshot(service, definition, version, pin, transaction, isChosen);
  }

  /** The same version, as a transaction of several statements sees it. */
  Snapshot within(SqlTransaction transaction) {
    return new Snapshot(service, meta, version, pin, transaction, isChosen);
  }

  /** The same, where somebody has named the version: by number, tag or time. */
  public Snapshot chosen() {
    return new Snapshot(service, meta, version, pin, transaction, true);
  }

  /** Whether somebody has named the version. Otherwise it was the newest one when the plan was made. */
  public boolean isChosen() {
    return isChosen;
  }

  /** The transaction of several statements that sees it; null where it is none's. */
  public SqlTransaction transaction() {
    return transaction;
  }

  private static Snapshot pinned(Service service, Table meta, long version) {
    return new Snapshot(service, meta, version, service.pins().hold(meta.getTableId(), version), null, false);
  }

  public Service service() {
    return service;
  }

  public Table meta() {
    return meta;
  }

  public long version() {
    return version;
  }

  public String tableId() {
    return meta.getTableId();
  }

  public boolean isKeyed() {
    return meta.getPrimaryKeyCount() > 0;
  }

  /** Ends what keeps the version readable, for readers that keep what they need themselves. */
  public void letGo() {
    if (pin != null) pin.letGo();
  }

  /** Where an entry lies: an external one's path is whole. */
  public String pathOf(String path) {
    boolean isWhole = path.contains("://") || path.startsWith("/") || path.startsWith("file:");
    return isWhole ? path : service.address().warehouse() + "/" + meta.getTableId() + "/" + path;
  }

  /** The table's columns when the file was written. */
  public synchronized List<Column> columnsOf(DataFile file) {
    if (file.getSchemaVersion() == meta.getSchemaVersion()) return meta.getColumnsList();
    if (schemas == null || file.getSchemaVersion() > newestKnown()) schemas = listSchemas();
    long oldest = schemas.keySet().stream().min(Long::compare).orElseThrow();
    return schemas.get(file.getSchemaVersion() == 0 ? oldest : file.getSchemaVersion());
  }

  private long newestKnown() {
    return schemas.keySet().stream().max(Long::compare).orElse(0L);
  }

  private Map<Long, List<Column>> listSchemas() {
    Map<Long, List<Column>> found = new HashMap<>();
    ListSchemasRequest.Builder request = ListSchemasRequest.newBuilder().setTableId(meta.getTableId()).setPageSize(1_000);
    do {
      ListSchemasRequest page = request.build();
      ListSchemasResponse answer = service.ask(stubs -> stubs.catalog().listSchemas(page));
      for (SchemaVersion one : answer.getSchemasList()) found.put(one.getSchemaVersion(), one.getColumnsList());
      request.setPageToken(answer.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return found;
  }
}
