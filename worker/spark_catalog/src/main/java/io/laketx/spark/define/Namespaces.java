package io.laketx.spark.define;

import io.laketx.spark.BranchSetting;
import io.laketx.spark.TableNames;
import io.laketx.spark.read.SparkInternals;
import io.laketx.spark.service.Ids;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import io.laketx.v1.CreateNamespaceRequest;
import io.laketx.v1.DropNamespaceRequest;
import io.laketx.v1.GetNamespaceRequest;
import io.laketx.v1.ListNamespacesRequest;
import io.laketx.v1.ListNamespacesResponse;
import io.laketx.v1.Namespace;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;

/** Namespaces: names of one part. A comment is kept as the property `user.comment`. */
public final class Namespaces {
  private static final int PAGE = 1_000;
  private static final String COMMENT = "user.comment";

  private final Service service;
  private final BranchSetting branch;
  private volatile Seen seen = new Seen(new WeakReference<>(null), "", Namespace.getDefaultInstance());

  /** What a statement was told while Spark analysed it. */
  private record Seen(WeakReference<Object> statement, String name, Namespace found) {}

  public Namespaces(Service service, BranchSetting branch) {
    this.service = service;
    this.branch = branch;
  }

  public String[][] list() {
    ListNamespacesRequest.Builder request = ListNamespacesRequest.newBuilder().setPageSize(PAGE).setBranch(branch.current());
    List<String[]> found = new ArrayList<>();
    do {
      ListNamespacesRequest page = request.build();
      ListNamespacesResponse answer = service.ask(stubs -> stubs.catalog().listNamespaces(page));
      answer.getNamesList().forEach(name -> found.add(new String[] {name}));
      request.setPageToken(answer.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return found.toArray(String[][]::new);
  }

  /** The empty name is the root's, which holds the tables without a namespace. */
  public Namespace load(String[] name) throws NoSuchNamespaceException {
    if (name.length == 0) return Namespace.getDefaultInstance();
    if (name.length > 1) throw new NoSuchNamespaceException(name);
    try {
      GetNamespaceRequest request = GetNamespaceRequest.newBuilder().setName(named(name[0])).build();
      return service.ask(stubs -> stubs.catalog().getNamespace(request)).getNamespace();
    } catch (LakeException error) {
      if (Tables.cannotBe(error)) throw new NoSuchNamespaceException(name);
      throw error;
    }
  }

  /** Spark asks many times while it analyses one statement: all but the first get the same answer. */
  public Map<String, String> metadata(String[] name) throws NoSuchNamespaceException {
    Map<String, String> found = new HashMap<>(loadOnce(name).getPropertiesMap());
    String comment = found.remove(COMMENT);
    if (comment != null) found.put(SupportsNamespaces.PROP_COMMENT, comment);
    return found;
  }

  private Namespace loadOnce(String[] name) throws NoSuchNamespaceException {
    Object statement = SparkInternals.statement();
    if (statement == null || name.length != 1) return load(name);
    Seen before = seen;
    String whole = named(name[0]);
    if (before.statement.refersTo(statement) && before.name.equals(whole)) return before.found;
    Namespace found = load(name);
    seen = new Seen(new WeakReference<>(statement), whole, found);
    return found;
  }

  public void create(String[] name, Map<String, String> metadata) throws NamespaceAlreadyExistsException {
    Map<String, String> properties = new HashMap<>(metadata);
    properties.remove(SupportsNamespaces.PROP_OWNER); // Spark's, who the session's user is
    String comment = properties.remove(SupportsNamespaces.PROP_COMMENT);
    if (comment != null) properties.put(COMMENT, comment);
    if (properties.containsKey(SupportsNamespaces.PROP_LOCATION)) {
      throw LakeException.invalid(
          "LOCATION_FIXED", "a namespace has no folder: its tables' files lie in the warehouse; leave LOCATION out");
    }
    CreateNamespaceRequest request =
        CreateNamespaceRequest.newBuilder()
            .setName(named(onePart(name)))
            .putAllProperties(properties)
            .setRequestId(Ids.uuid7())
            .build();
    try {
      service.ask(stubs -> stubs.catalog().createNamespace(request));
    } catch (LakeException error) {
      if (error.reason().equals("NAMESPACE_EXISTS")) throw new NamespaceAlreadyExistsException(name);
      throw error;
    }
  }

  /** Whether it was there. */
  public boolean drop(String[] name, boolean cascade) throws NoSuchNamespaceException, NonEmptyNamespaceException {
    if (cascade) {
      throw LakeException.invalid(
          "CASCADE_REFUSED", "a namespace is dropped when it is empty: drop its tables first, and leave CASCADE out");
    }
    DropNamespaceRequest request = DropNamespaceRequest.newBuilder().setName(named(onePart(name))).build();
    try {
      service.ask(stubs -> stubs.catalog().dropNamespace(request));
    } catch (LakeException error) {
      if (error.reason().equals("NAMESPACE_NOT_EMPTY")) throw new NonEmptyNamespaceException(name);
      if (Tables.cannotBe(error)) return false;
      throw error;
    }
    return true;
  }

  private String named(String name) {
    return TableNames.onBranch(name, branch.current());
  }

  private static String onePart(String[] name) {
    if (name.length == 1) return name[0];
    throw LakeException.invalid("NAME_INVALID", "a namespace has a name of one part, such as lake.shop");
  }
}
