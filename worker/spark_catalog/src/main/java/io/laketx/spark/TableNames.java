package io.laketx.spark;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Names of tables: "table" or "namespace.table" to the service, a name in a namespace of one part or none to Spark. */
public final class TableNames {
  private static final String BY_ID = "$id"; // no namespace has that name
  private static final int WITH_OPTIONS = 3; // parts of the namespace
  static final String AT = "@"; // begins the branch in the name of a table
  private static final String BRANCH = "branch_"; // begins the last part of the name of a table on a branch

  private TableNames() {}

  /** The id of a table that is named by it, as `$id`.`…`, or with options of a write; null where it isn't. */
  public static String idOf(Identifier ident) {
    String[] namespace = ident.namespace();
    if (namespace.length == 0 || !namespace[0].equals(BY_ID)) return null;
    if (namespace.length == 1) return ident.name();
    return namespace.length == WITH_OPTIONS ? namespace[1] : null;
  }

  /**
   * The options of a write that its name brings with it, as `$id`.`…`.`message=a+load&result=…`.`target`: for statements
   * that Spark gives no other place for them. Their rows are those of `target`.
   */
  public static CaseInsensitiveStringMap optionsOf(Identifier ident) {
    if (idOf(ident) == null || ident.namespace().length != WITH_OPTIONS) return CaseInsensitiveStringMap.empty();
    Map<String, String> found = new HashMap<>();
    for (String one : ident.namespace()[2].split("&")) {
      String[] parts = one.split("=", 2);
      if (parts.length == 2) found.put(decoded(parts[0]), decoded(parts[1]));
    }
    return new CaseInsensitiveStringMap(found);
  }

  private static String decoded(String text) {
    return URLDecoder.decode(text, StandardCharsets.UTF_8);
  }

  /** Null where no table can have that name. */
  public static String ofTable(Identifier ident) {
    return switch (ident.namespace().length) {
      case 0 -> ident.name();
      case 1 -> ident.namespace()[0] + "." + ident.name();
      case 2 -> onBranch(ident);
      default -> null;
    };
  }

  /** `shop.orders@etl` of `shop.orders.branch_etl`; null of any other name. */
  private static String onBranch(Identifier ident) {
    String[] namespace = ident.namespace();
    if (namespace[0].equals(BY_ID) || !ident.name().startsWith(BRANCH)) return null;
    return namespace[0] + "." + namespace[1] + AT + ident.name().substring(BRANCH.length());
  }

  /** The name without its branch. */
  public static String offBranch(String name) {
    int at = name.indexOf(AT);
    return at < 0 ? name : name.substring(0, at);
  }

  /** The name of a namespace on a branch; empty: the lake itself. */
  public static String onBranch(String namespace, String branch) {
    return branch.isEmpty() ? namespace : namespace + AT + branch;
  }

  public static Identifier identifier(String name) {
    int dot = name.indexOf('.');
    if (dot < 0) return Identifier.of(new String[0], name);
    return Identifier.of(new String[] {name.substring(0, dot)}, name.substring(dot + 1));
  }

  /** The table whose metadata table is meant, `shop.orders` in `shop.orders.history`; null where none can be. */
  public static String ofParent(Identifier ident) {
    String[] namespace = ident.namespace();
    return namespace.length == 0 || namespace.length > 2 ? null : String.join(".", namespace);
  }
}
