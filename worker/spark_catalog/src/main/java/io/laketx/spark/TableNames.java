package io.laketx.spark;

import org.apache.spark.sql.connector.catalog.Identifier;

/** Names of tables: "table" or "namespace.table" to the service, a name in a namespace of one part or none to Spark. */
public final class TableNames {
  private static final String BY_ID = "$id"; // no namespace has that name

  private TableNames() {}

  /** The id of a table that is named by it, as `$id`.`…`; null where it isn't. */
  public static String idOf(Identifier ident) {
    return ident.namespace().length == 1 && ident.namespace()[0].equals(BY_ID) ? ident.name() : null;
  }

  /** Null where no table can have that name. */
  public static String ofTable(Identifier ident) {
    return switch (ident.namespace().length) {
      case 0 -> ident.name();
      case 1 -> ident.namespace()[0] + "." + ident.name();
      default -> null;
    };
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
