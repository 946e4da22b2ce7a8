package io.laketx.spark.read;

import io.laketx.spark.keys.KeyIndex;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Pins;
import io.laketx.spark.service.Service;
import io.laketx.v1.Column;
import io.laketx.v1.DataFile;
import io.laketx.v1.ErrorKind;
import io.laketx.v1.GetTableRequest;
import io.laketx.v1.ListSchemasRequest;
import io.laketx.v1.ListSchemasResponse;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.PlanScanRequest;
import io.laketx.v1.SchemaVersion;
import io.laketx.v1.Table;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A version of a table, under the schema of that version. Its files stay for as long as this can be reached.
 *
 * <p>One that a statement has only looked at is held when a read of it is planned, or soon after: what writes alone holds
 * none.
 */
public final class Snapshot {
  private static final Logger LOG = LoggerFactory.getLogger(Snapshot.class);
  private static final int LOOKS_MAX = 8;
  private static final long HOLD_AFTER_MS = 10_000;
  private final Service service;
  private final Table meta;
  private long version;
  private Pins.Pin pin; // null: the caller keeps it, or it is not held yet
  private boolean isLooseYet;
  private boolean isUpcoming;
  private boolean isWritten;
  private String definition = ""; // the table's, where an earlier statement has looked at it, and this one hasn't
  private final SqlTransaction transaction;
  private final boolean isChosen;
  private final long madeNs = System.nanoTime();
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

  /** The same, which is held when a read of it is planned, or in a while. */
  public static Snapshot lookedAt(Service service, Table meta) {
    return loose(service, meta, meta.getHeadVersion(), false, false);
  }

  /** A version that somebody has named, under the schema of then; held like the one before. */
  public static Snapshot named(Service service, Table meta, long version) {
    return loose(service, meta, version, false, true);
  }

  /**
   * The version that is the newest when the first read of it is planned, under the columns that the table had at a look
   * a moment ago.
   */
  public static Snapshot upcoming(Service service, Table meta) {
    return loose(service, meta, meta.getHeadVersion(), true, false);
  }

  /**
   * The newest version, for a statement that adds rows to a table which an earlier statement has looked at: the service
   * compares its definition when the transaction begins.
   */
  public static Snapshot remembered(Service service, Table meta) {
    Snapshot found = upcoming(service, meta);
    found.definition = meta.getDefinition();
    return found;
  }

  private static Snapshot loose(Service service, Table meta, long version, boolean isUpcoming, boolean isChosen) {
    Snapshot found = new Snapshot(service, meta, version, null, null, isChosen);
    found.isUpcoming = isUpcoming;
    found.loosen();
    return found;
  }

  private void loosen() {
    isLooseYet = true;
    WeakReference<Snapshot> reachable = new WeakReference<>(this);
    service.pins().later(() -> holdLater(reachable.get()), HOLD_AFTER_MS);
  }

  private static void holdLater(Snapshot found) {
    try {
      if (found != null && !found.isWritten()) found.hold();
    } catch (LakeException error) {
      LOG.debug("a version that a plan reads is not held yet: {}", error.getMessage());
    }
  }

  /** Holds one that was looked at. Where its version is retired already, it becomes the newest under the same columns. */
  public synchronized void hold() {
    isUpcoming = false;
    for (int look = 1; isLooseYet; look++) {
      try {
        pin = service.pins().hold(meta.getTableId(), version);
        isLooseYet = false;
      } catch (LakeException error) {
        if (isChosen || !error.reason().equals("VERSION_RETIRED") || look == LOOKS_MAX) throw error;
        Table now = newest();
        if (now.getSchemaVersion() != meta.getSchemaVersion()) throw error;
        version = now.getHeadVersion();
      }
    }
  }

  /** The entries of a read. The first one holds the version, in the same call. */
  synchronized List<LiveEntry> plan(PlanScanRequest.Builder request) {
    if (isLooseYet && !isUpcoming) {
      pin = service.pins().known(meta.getTableId(), version);
      isLooseYet = pin == null;
    }
    if (!isLooseYet) return Plan.ask(service, request.setVersion(version).build()).entries();
    String pinId = service.pins().newId();
    request.setPinId(pinId).setPrincipal(service.principal()).setWithTables(isUpcoming);
    if (!isUpcoming) request.setVersion(version);
    Plan.Answer answer;
    try {
      answer = Plan.ask(service, request.build());
    } catch (LakeException error) {
      if (!error.reason().equals("VERSION_RETIRED")) throw error;
      hold();
      return plan(unpinned(request));
    }
    if (answer.leaseMs() > 0) {
      if (isUpcoming) checkColumns(answer.table(), pinId);
      version = answer.version();
      pin = service.pins().taken(meta.getTableId(), version, pinId, answer.leaseMs());
      isLooseYet = false;
      isUpcoming = false;
      return answer.entries();
    }
    if (isUpcoming) { // a service of the release before pins nothing with a plan, nor tells the columns
      Table now = newest();
      checkColumns(now, pinId);
      version = now.getHeadVersion();
    }
    hold();
    return plan(unpinned(request));
  }

  /** The definition that the table must have when the transaction begins; empty where the statement has looked at it. */
  public synchronized String definition() {
    return definition;
  }

  /** Looks at the table, for a statement that must know its version. What has changed is left to the begin. */
  public synchronized void look() {
    if (definition.isEmpty()) return;
    Table now;
    try {
      now = newest();
    } catch (LakeException dropped) {
      if (dropped.kind() == ErrorKind.ERROR_KIND_UNAVAILABLE) throw dropped;
      return;
    }
    if (!now.getDefinition().equals(definition)) return;
    version = now.getHeadVersion();
    isUpcoming = false;
    definition = "";
  }

  private Table newest() {
    GetTableRequest request = GetTableRequest.newBuilder().setTableId(meta.getTableId()).build();
    return service.ask(stubs -> stubs.catalog().getTable(request)).getTable();
  }

  private static Column asRead(Column column) {
    return column.toBuilder().clearComment().clearDefaultSql().build();
  }

  /** The columns that the plan was made for are still there. */
  private void checkColumns(Table now, String pinId) {
    if (now.getSchemaVersion() == meta.getSchemaVersion()) return;
    Set<Column> there = now.getColumnsList().stream().map(Snapshot::asRead).collect(Collectors.toSet());
    List<String> changed =
        meta.getColumnsList().stream().filter(one -> !there.contains(asRead(one))).map(Column::getName).toList();
    boolean isLaidOutAlike =
        now.getPartitionColumnsList().equals(meta.getPartitionColumnsList())
            && now.getPrimaryKeyList().equals(meta.getPrimaryKeyList())
            && now.getBuckets() == meta.getBuckets();
    if (changed.isEmpty() && isLaidOutAlike) return;
    service.pins().drop(pinId);
    SparkInternals.<RuntimeException>refuseChanged(meta.getName(), changed);
  }

  private static PlanScanRequest.Builder unpinned(PlanScanRequest.Builder request) {
    return request.clearPinId().clearPrincipal().clearWithTables();
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
    if (isChosen || isKept() || isUpcoming() || transaction != null) return this;
    Table now = newest();
    boolean isSame = now.getHeadVersion() == version || now.getSchemaVersion() != meta.getSchemaVersion();
    return isSame ? this : newest(service, now);
  }

  /** A statement adds rows and reads none of it: it isn't held before a read is planned. */
  public synchronized void written() {
    isWritten = true;
  }

  private synchronized boolean isWritten() {
    return isWritten;
  }

  /** Whether its version is known when the first read of it is planned. */
  synchronized boolean isUpcoming() {
    return isUpcoming;
  }

  private synchronized boolean isKept() {
    return pin == null && !isLooseYet;
  }

  /** A version that the caller keeps readable, under the schema of that version. */
  public static Snapshot kept(Service service, Table meta, long version) {
    return new Snapshot(service, meta, version, null, null, false);
  }

  /** The same version, written under another definition than it has. */
  public Snapshot under(Table definition) {
    return copy(definition, transaction, isChosen);
  }

  private synchronized Snapshot copy(Table itsMeta, SqlTransaction itsTransaction, boolean isItChosen) {
    Snapshot found = new Snapshot(service, itsMeta, version, pin, itsTransaction, isItChosen);
    found.isUpcoming = isUpcoming;
    found.definition = definition;
    if (isLooseYet) found.loosen();
    return found;
  }

  /** The same version, as a transaction of several statements sees it. */
  Snapshot within(SqlTransaction transaction) {
    return copy(meta, transaction, isChosen);
  }

  /** The same, where somebody has named the version: by number, tag or time. */
  public Snapshot chosen() {
    return copy(meta, transaction, true);
  }

  /** The same, where the version was named for somebody who had asked for the newest one. */
  public Snapshot counted() {
    return copy(meta, transaction, false);
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

  public synchronized long version() {
    return version;
  }

  /** Since it was looked at. */
  public long ageMs() {
    return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - madeNs);
  }

  public String tableId() {
    return meta.getTableId();
  }

  public boolean isKeyed() {
    return meta.getPrimaryKeyCount() > 0;
  }

  /** Whether its images may set single columns. */
  public boolean isPartial() {
    return isKeyed() && "partial".equals(meta.getPropertiesOrDefault("merge.engine", "whole"));
  }

  /** Ends what keeps the version readable, for readers that keep what they need themselves. */
  public synchronized void letGo() {
    isLooseYet = false;
    if (pin != null) pin.letGo();
  }

  /** Where an entry lies: an external one's path is whole. */
  public String pathOf(String path) {
    boolean isWhole = path.contains("://") || path.startsWith("/") || path.startsWith("file:");
    return isWhole ? path : folder() + "/" + path;
  }

  /** The table's. */
  private String folder() {
    return service.address().warehouse() + "/" + folderId(meta);
  }

  /** What the table's key index says; null where there is none that can be used. */
  public KeyIndex keyIndex() {
    try {
      return KeyIndex.of(SparkInternals.storageOf(folder()), folder(), meta);
    } catch (IOException unknown) {
      LOG.debug("the key index of {} can't be looked at: {}", meta.getName(), unknown.getMessage());
      return null;
    }
  }

  /** The table in whose folder the files lie: a fork's are in that of the table that it was forked from. */
  public static String folderId(Table meta) {
    return meta.getFolderId().isEmpty() ? meta.getTableId() : meta.getFolderId();
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
