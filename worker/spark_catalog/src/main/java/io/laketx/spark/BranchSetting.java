package io.laketx.spark;

import io.laketx.spark.define.Tables;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The branch on which a session's tables are where their names say none: `spark.laketx.branch` of the session, or else
 * `spark.sql.catalog.NAME.branch` of the catalog. `main` is the lake itself.
 */
public final class BranchSetting {
  public static final String SESSION = "spark.laketx.branch";
  private static final String OPTION = "branch";
  private static final String MAIN = "main";
  private static final String ON_MAIN = TableNames.AT + MAIN;
  private static final Pattern NAME = Pattern.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,63}");

  private final String ofCatalog;

  BranchSetting(CaseInsensitiveStringMap options) {
    ofCatalog = options.getOrDefault(OPTION, "").strip();
  }

  /** Empty: the lake itself. */
  public String current() {
    String ofSession = SQLConf.get().getConfString(SESSION, "").strip();
    String name = ofSession.isEmpty() ? ofCatalog : ofSession;
    if (name.isEmpty() || name.equalsIgnoreCase(MAIN)) return "";
    if (NAME.matcher(name).matches()) return name;
    String setting = ofSession.isEmpty() ? "the catalog's setting branch" : SESSION;
    throw LakeException.invalid(
        "BRANCH_NAME_INVALID",
        setting + " is '" + name + "': a branch's name has letters, digits, _ and -; RESET " + SESSION + " is for main");
  }

  /** The name of a table with its branch, as the service has it. */
  public String on(String given) {
    String name = whole(given);
    if (name.toLowerCase(Locale.ROOT).endsWith(ON_MAIN)) return name.substring(0, name.length() - ON_MAIN.length());
    if (name.contains(TableNames.AT)) return name;
    String branch = current();
    return branch.isEmpty() ? name : name + TableNames.AT + branch;
  }

  /** `shop.orders@etl` for `shop.orders.branch_etl`; any other name as it is. */
  private static String whole(String name) {
    String[] parts = name.split("\\.");
    if (parts.length != 3) return name;
    String found = TableNames.ofTable(Identifier.of(new String[] {parts[0], parts[1]}, parts[2]));
    return found == null ? name : found;
  }

  /** The same table, whose name says the branch; one that is named by its id stays, and so does what no table can have. */
  Identifier on(Identifier ident) {
    String name = TableNames.idOf(ident) == null ? TableNames.ofTable(ident) : null;
    return name == null ? ident : TableNames.identifier(on(name));
  }

  /** The tables of the current branch by name, without its name; of one namespace, or of all if it is empty. */
  List<String> tables(Service service, String namespace) {
    return Tables.list(service, namespace, current(), false).stream()
        .map(one -> TableNames.offBranch(one.getName()))
        .toList();
  }

  /** The setting with which the query of a view names tables as the session does. */
  public Map<String, String> ofViews() {
    String branch = current();
    if (branch.isEmpty() && ofCatalog.isEmpty()) return Map.of();
    return Map.of(SESSION, branch.isEmpty() ? MAIN : branch);
  }

  private static String nameOf(String branch) {
    return branch.isEmpty() ? "the lake itself" : "the branch " + branch;
  }

  /** The tables in a view's query are those of the session's branch: a view of another branch would show other rows. */
  public void checkReads(String view) {
    int at = view.indexOf(TableNames.AT);
    String branch = at < 0 ? "" : view.substring(at + 1);
    if (branch.equalsIgnoreCase(current())) return;
    throw LakeException.invalid(
        "VIEW_OF_OTHER_BRANCH",
        "the view " + view + " is of " + nameOf(branch) + ", and the session works on " + nameOf(current())
            + ", whose tables the view's query would read: SET " + SESSION + " = " + (branch.isEmpty() ? MAIN : branch)
            + " first");
  }
}
