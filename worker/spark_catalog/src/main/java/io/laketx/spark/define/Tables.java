package io.laketx.spark.define;

import io.laketx.spark.service.Ids;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import io.laketx.v1.AlterTableRequest;
import io.laketx.v1.AlterTableResponse;
import io.laketx.v1.Alteration;
import io.laketx.v1.CreateMode;
import io.laketx.v1.CreateTableRequest;
import io.laketx.v1.DropTableRequest;
import io.laketx.v1.ErrorKind;
import io.laketx.v1.GetTableRequest;
import io.laketx.v1.GetTableResponse;
import io.laketx.v1.ListTablesRequest;
import io.laketx.v1.ListTablesResponse;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.List;

/** Calls about tables. Each change has an id of its own, so that a repeat answers what the first call did. */
public final class Tables {
  private static final int PAGE = 1_000;

  private Tables() {}

  /** The table of that name; null if there is none, or none can have it. */
  public static Table find(Service service, String name) {
    return name == null ? null : find(service, GetTableRequest.newBuilder().setName(name).build());
  }

  /** The table of that id, whatever its name is by now; null if there is none. */
  public static Table findById(Service service, String id) {
    return find(service, GetTableRequest.newBuilder().setTableId(id).build());
  }

  /** A table as it was at the version, time or tag that the request names, and that version; null if there is none. */
  public static GetTableResponse findAt(Service service, GetTableRequest request) {
    try {
      return service.ask(stubs -> stubs.catalog().getTable(request));
    } catch (LakeException error) {
      GetTableRequest newest = request.toBuilder().clearVersion().clearTimeUs().clearTag().build();
      if (cannotBe(error) && find(service, newest) == null) return null;
      throw error; // there is one, but not that version of it
    }
  }

  private static Table find(Service service, GetTableRequest request) {
    try {
      return service.ask(stubs -> stubs.catalog().getTable(request)).getTable();
    } catch (LakeException error) {
      if (cannotBe(error)) return null;
      throw error;
    }
  }

  /** The table of that name. */
  public static Table get(Service service, String name) {
    GetTableRequest request = GetTableRequest.newBuilder().setName(name).build();
    return service.ask(stubs -> stubs.catalog().getTable(request)).getTable();
  }

  /** Whether nothing has that name: no table or namespace does, or its letters are not those of a name. */
  public static boolean cannotBe(LakeException error) {
    return error.reason().equals("TABLE_UNKNOWN")
        || error.reason().equals("NAMESPACE_UNKNOWN")
        || error.kind() == ErrorKind.ERROR_KIND_INVALID;
  }

  /** By name; of one namespace, or of all if it is empty; of a branch, or of the lake. Dropped ones come last. */
  public static List<Table> list(Service service, String namespace, String branch, boolean includeDropped) {
    ListTablesRequest.Builder request =
        ListTablesRequest.newBuilder()
            .setPageSize(PAGE)
            .setNamespace(namespace)
            .setBranch(branch)
            .setIncludeDropped(includeDropped);
    List<Table> found = new ArrayList<>();
    do {
      ListTablesRequest page = request.build();
      ListTablesResponse answer = service.ask(stubs -> stubs.catalog().listTables(page));
      found.addAll(answer.getTablesList());
      request.setPageToken(answer.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return found;
  }

  /** The new table. */
  public static Table create(Service service, Table table) {
    CreateTableRequest request =
        CreateTableRequest.newBuilder()
            .setRequestId(Ids.uuid7())
            .setTable(table)
            .setPrincipal(service.principal())
            .build();
    return service.ask(stubs -> stubs.catalog().createTable(request)).getTable();
  }

  /** The table as it would be: new, or redefined where `mode` says so. Nothing is done. */
  public static Table wouldBe(Service service, Table table, CreateMode mode) {
    CreateTableRequest request =
        CreateTableRequest.newBuilder()
            .setRequestId(Ids.uuid7())
            .setTable(table)
            .setMode(mode)
            .setValidateOnly(true)
            .setPrincipal(service.principal())
            .build();
    return service.ask(stubs -> stubs.catalog().createTable(request)).getTable();
  }

  /** Empties and redefines a table, in one commit. */
  public static void replace(Service service, Table table) {
    CreateTableRequest request =
        CreateTableRequest.newBuilder()
            .setRequestId(Ids.uuid7())
            .setTable(table)
            .setMode(CreateMode.CREATE_MODE_OR_REPLACE)
            .setPrincipal(service.principal())
            .build();
    service.ask(stubs -> stubs.catalog().createTable(request));
  }

  /** Whether the service would make these changes. */
  public static boolean mayAlter(Service service, Table table, Alteration alteration) {
    AlterTableRequest request =
        AlterTableRequest.newBuilder()
            .setTxnId(Ids.uuid7())
            .setTableId(table.getTableId())
            .setAlteration(alteration)
            .setValidateOnly(true)
            .setPrincipal(service.principal())
            .build();
    try {
      service.ask(stubs -> stubs.catalog().alterTable(request));
      return true;
    } catch (LakeException error) {
      if (error.kind() == ErrorKind.ERROR_KIND_UNAVAILABLE) throw error;
      return false;
    }
  }

  /** All changes in one commit. */
  public static AlterTableResponse alter(Service service, Table table, Alteration alteration) {
    AlterTableRequest request =
        AlterTableRequest.newBuilder()
            .setTxnId(Ids.uuid7())
            .setTableId(table.getTableId())
            .setAlteration(alteration)
            .setPrincipal(service.principal())
            .build();
    return service.ask(stubs -> stubs.catalog().alterTable(request));
  }

  public static void rename(Service service, Table table, String name) {
    alter(service, table, Alteration.newBuilder().setName(name).build());
  }

  /** Its open transactions end. */
  public static void drop(Service service, Table table) {
    DropTableRequest request =
        DropTableRequest.newBuilder().setTableId(table.getTableId()).setPrincipal(service.principal()).build();
    try {
      service.ask(stubs -> stubs.catalog().dropTable(request));
    } catch (LakeException error) {
      // the first of two attempts did it, or somebody else
      if (!error.reason().equals("TABLE_DROPPED") && !error.reason().equals("TABLE_UNKNOWN")) throw error;
    }
  }
}
